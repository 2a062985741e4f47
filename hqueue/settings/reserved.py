"""Names that are the system's own: topics and headers that begin with ``hqueue.``.

They lie among those of users, and say what only the system knows: which message a subscriber did
not take, and which number a publisher gave. So whatever comes from outside is refused under such a
name, at each way in; the system's own writers don't pass this check. A copy of a message that was
read leaves such headers out, as it leaves out where the message lay.
"""

from __future__ import annotations

from collections.abc import Iterable

from hqueue.errors import InvalidInputError
from hqueue.settings.kinds import check_kind

__all__ = ["PREFIX", "check_headers", "check_topic", "is_reserved", "is_unreserved", "unreserved"]

PREFIX = "hqueue."

_Headers = tuple[tuple[str, bytes], ...]


def is_reserved(name: str) -> bool:
    """Whether a topic or a header of this name is the system's own: it begins with ``hqueue.``."""
    return bool(check_kind(name, str, "name").startswith(PREFIX))


def is_unreserved(name: str) -> bool:
    """Whether programs may use this name for a topic or a header."""
    return not name.startswith(PREFIX)


def check_topic(topic: str) -> None:
    """See that a topic may be written to from outside.

    Raises:
        InvalidInputError: it is the system's own.
    """
    if topic.startswith(PREFIX):
        raise InvalidInputError(
            "topics that begin with 'hqueue.' are the system's own: nothing was written; choose "
            "another topic, and leave such messages out of a copy (hqueue.is_reserved)",
            topic=topic,
        )


def check_headers(names: Iterable[str]) -> None:
    """See that headers may be written from outside.

    Raises:
        InvalidInputError: one is the system's own.
    """
    for name in names:
        if name.startswith(PREFIX):
            raise InvalidInputError(
                "headers that begin with 'hqueue.' are the system's own: nothing was written; "
                "leave such headers out (hqueue.is_reserved)",
                header=name[:200],
            )


def unreserved(headers: _Headers) -> _Headers:
    """Those headers that are not the system's own."""
    if any(name.startswith(PREFIX) for name, _ in headers):
        return tuple([each for each in headers if not each[0].startswith(PREFIX)])
    return headers
