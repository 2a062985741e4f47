"""The messages that a consumer of a share group holds."""

from __future__ import annotations

import dataclasses
import enum

from hqueue.sharing.window import DONE, Mark

__all__ = ["Answer", "Held"]


class Answer(enum.Enum):
    """What a consumer answers for a message that it holds."""

    DONE = "done"
    """The message was processed, or has expired."""
    REJECTED = "rejected"
    """The program rejected the message, which is a dead letter now."""
    EXHAUSTED = "exhausted"
    """The message was delivered too often, and is a dead letter now."""
    RELEASE = "release"
    """The program got the message, and any consumer may get it again."""
    RETURN = "return"
    """The program never got the message, and any consumer may get it."""
    RENEW = "renew"
    """The program needs more time for the message."""

    @property
    def is_done(self) -> bool:
        """Whether the group is done with the message."""
        return self in (Answer.DONE, Answer.REJECTED, Answer.EXHAUSTED)


@dataclasses.dataclass(slots=True)
class Held:
    """A message that a consumer has acquired."""

    deliveries: int
    until_ms: float
    """When the lock lapses, by this consumer's clock: no later than for any other consumer."""
    slot: int
    """The slot of the message's key, where keys are kept in order."""
    answer: Answer | None = None
    """The answer that must be written."""
    due_ms: int | None = None
    """When a released message is due again, in milliseconds since the epoch; None for at once."""
    delivered: bool = False
    """Whether the message was handed out."""

    def mark(self, answer: Answer, own: Mark) -> Mark:
        """The message's mark after an answer that names no later time.

        Args:
            answer: the answer.
            own: the mark of a message that is acquired now, without its deliveries.
        """
        if answer.is_done:
            return DONE
        held = own._replace(deliveries=self.deliveries)
        if answer is Answer.RENEW:
            return held
        return held.released(delivered=answer is Answer.RELEASE)
