"""How the cost of hubs grows with the number of topics."""
