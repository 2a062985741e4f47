"""Writing to queues, each row once. It imports `pyspark_hqueue.reading` for options and clients."""
