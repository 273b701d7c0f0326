"""Methods as their papers print them, each a model for `dpvb.Private`; nothing of the package imports them."""
