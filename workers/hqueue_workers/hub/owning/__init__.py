"""Which topics a hub has: the flow of a call, taking over, claims of partitions, giving away."""
