"""The messages of a run: what producers put, and how each is known again as a whole."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence

from hqueue import Message
from hqueue.message import Headers

__all__ = ["KEYS", "has_extras", "made", "name_of", "token_of"]

PLAIN_SHARE = 0.5
TOPICS = ("red", "green", "blue")
KEYS: Sequence[bytes | None] = (None, b"", b"key", b"\0\xff|", b"k" * 300)
HEADERS: Sequence[Headers] = (
    (),
    (("trace", b"a1"), ("trace", b""), ("", b"\0\xff|")),
    (("grün\n", b"x" * 500),),
)
PLAIN, EXTRA = "~", "+"
DIGEST_BYTES = 6


def made(
    names: Sequence[str], size: int, keys: Sequence[bytes | None], chance: random.Random
) -> list[Message]:
    """The messages of a put. In half of the puts none has a key or headers.

    Args:
        names: what the messages are called, each once in a run.
        size: of their values, beyond the names.
        keys: what their keys may be.
        chance: what chooses.
    """
    filling = chance.randbytes(size)
    keys, headers = (keys, HEADERS) if chance.random() >= PLAIN_SHARE else ((None,), ((),))
    return [
        Message(
            chance.choice(TOPICS),
            name.encode() + b"|" + filling,
            chance.choice(keys),
            chance.choice(headers),
        )
        for name in names
    ]


def token_of(message: Message) -> str:
    """A message's name, whether it has a key or headers, and a digest of all that it is.

    So one that comes back with another topic, value, key or headers is another one.
    """
    mark = PLAIN if message.key is None and not message.headers else EXTRA
    said = repr((message.topic, message.key, message.headers)).encode()
    digest = hashlib.blake2b(said + message.value, digest_size=DIGEST_BYTES).hexdigest()
    return message.value.partition(b"|")[0].decode(errors="replace") + mark + digest


def name_of(token: str) -> str:
    """The name of the message of a token; histories of earlier releases have nothing else."""
    return token.replace(EXTRA, PLAIN).rpartition(PLAIN)[0] or token


def has_extras(token: str) -> bool:
    """Whether that message has a key or headers."""
    return EXTRA in token
