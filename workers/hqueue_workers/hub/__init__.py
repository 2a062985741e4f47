"""Topics with owners: hubs share the topics of a queue, and publish and deliver their messages.

`serving` answers calls. `owning` knows which hub owns a topic, and takes topics over; its pure
module `flow` decides what a call leads to. `writing` appends what is published, and `subscribing`
delivers it to the subscriptions. `opening` puts together the objects of a hub for one queue, and
`hub` is the process.
"""
