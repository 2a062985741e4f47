"""Reading queues: the data source, in batch and as a stream, and reads placed near the data."""
