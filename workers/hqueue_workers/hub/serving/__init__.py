"""The calls of clients, and what comes of each."""
