"""Topics with owners: hubs share a queue's topics, and publish what they are called with.

What a call comes to is decided by `flow`, which is pure. `region` is a hub's part in one queue;
`takeover` makes a topic its own; `committer` appends what waits for one partition, together.
`service` is what is called, and `hub` the process.
"""
