"""Tables: rows of numbers, and what is declared of their columns."""
