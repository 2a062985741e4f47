"""Dead letters: messages that a subscriber did not take, and putting them back to it.

They lie in the queue itself, in the partition that they came from, under a topic of the
subscriber's own; so they are as durable as everything else, and expire with the queue's TTL. A
redrive is a message as well, under another topic, which is delivered to that subscriber alone.
Nobody gets either of them unasked: a subscription to all topics does not mean these. Both topics
are the system's own (`hqueue.settings.reserved`): what else lies under them is named, and passed
over.

The key and the headers of both are the original's. The value: a JSON object in UTF-8 on the first
line, and the original value behind it.

    {"version":1,"id":"1700000000000-0","topic":"clicks","subscriber":"s","reason":"rejected",
     "attempts":1,"dead_letter":null}

``id`` and ``topic`` are the original's; ``dead_letter`` is the ID of the dead letter that a
redrive puts back. A value that fits no batch together with this line, the key and the headers stays
where it was, and so do they: ``"value":"in the log"`` says so, and all three are read from there as
long as they have not expired.
"""
