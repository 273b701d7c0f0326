"""A transport over HTTPS, between a server and clients in processes of their own."""
