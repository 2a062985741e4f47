"""Dead letters: messages that a subscriber or a group could not process, and how they are put back
to it.

A dead letter lies in the queue itself, in the partition of the original, under a topic of the
subscriber or the group; so it is as durable as any message, and expires with the queue's TTL. A
redrive is a message as well, under another topic, and is delivered to that subscriber or group
alone. Neither is delivered to others: a subscription to all topics does not include these topics,
nor does a consumer of all topics. Both topics are reserved for the system
(`hqueue.settings.reserved`): other messages under them are reported and skipped.

Dead letters and redrives have the key and the headers of the original. Their value is a JSON object
in UTF-8 on the first line, followed by the original value.

    {"version":1,"id":"1700000000000-0","topic":"clicks","subscriber":"s","reason":"rejected",
     "attempts":1,"dead_letter":null}

``id`` and ``topic`` are the original's; ``dead_letter`` is the ID of the dead letter that a
redrive puts back. For a group, ``"group"`` with its name stands in the place of ``subscriber``. If
the value, the key and the headers don't fit a batch together with this line, all three are left
where they were: ``"value":"in the log"`` says so, and they are read from there until they expire.

A deletion lies under the topic of the redrives, and puts nothing back:

    {"version":1,"id":"1700000000000-0","subscriber":"s","deleted":"1700000000009-0"}

A dead letter waits until a redrive or a deletion of the same original follows it in the log.
"""
