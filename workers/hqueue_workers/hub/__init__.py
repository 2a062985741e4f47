"""Topics with owners: hubs share a queue's topics, and publish what they are called with.

A call comes to `serving`. Whether this hub has the topic, or who should have it, is `owning`'s
matter: what a call comes to is decided by `owning.flow`, which is pure. What is published is
appended by `writing`; it says whom an append concerns, and `subscribing` brings it to them.
`opening` puts together what a hub has of one queue, and `hub` is the process.
"""
