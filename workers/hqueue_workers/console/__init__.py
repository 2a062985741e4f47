"""The console: pages in a browser that show a cluster's queues, messages, groups and health."""
