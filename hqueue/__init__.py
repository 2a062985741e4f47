"""A durable, ordered, partitioned message queue that lives inside HBase."""
