"""What a hub appends: one writer a partition, whose appends are shared by all who wait."""
