"""Dead letters: messages that a subscriber or a consumer group could not process, and putting them
back to it.

They lie in the queue itself, in the partition that they came from, under a topic of the
subscriber's or the group's own; so they are as durable as everything else, and expire with the
queue's TTL. A redrive is a message as well, under another topic, which is delivered to that
subscriber or group alone. Nobody gets either of them unasked: a subscription to all topics does not
mean these, nor does a consumer of all topics. Both topics are the system's own
(`hqueue.settings.reserved`): what else lies under them is named, and passed over.

The key and the headers of both are the original's. The value: a JSON object in UTF-8 on the first
line, and the original value behind it.

    {"version":1,"id":"1700000000000-0","topic":"clicks","subscriber":"s","reason":"rejected",
     "attempts":1,"dead_letter":null}

``id`` and ``topic`` are the original's; ``dead_letter`` is the ID of the dead letter that a
redrive puts back. A group's have ``"group"`` and its name, and no ``subscriber``. A value that fits
no batch together with this line, the key and the headers stays where it was, and so do they:
``"value":"in the log"`` says so, and all three are read from there as long as they have not
expired.

A deletion lies under the topic of the redrives, and puts nothing back:

    {"version":1,"id":"1700000000000-0","subscriber":"s","deleted":"1700000000009-0"}

A dead letter waits until a redrive or a deletion of the same original lies behind it.
"""
