"""The messages that a consumer of a share group has in its hands."""

from __future__ import annotations

import dataclasses
import enum

from hqueue.sharing.window import DONE, Mark

__all__ = ["Answer", "Held"]


class Answer(enum.Enum):
    """What a consumer says of a message that it has."""

    DONE = "done"
    """It was processed, or lies among the dead letters."""
    RELEASE = "release"
    """Another consumer, or this one, shall get it again. The program got it."""
    RETURN = "return"
    """The same, but the program never got it."""
    RENEW = "renew"
    """It needs more time."""


@dataclasses.dataclass(slots=True)
class Held:
    """A message that a consumer has acquired."""

    deliveries: int
    until_ms: float
    """When its lock lapses, on the consumer's clock: not later than any other consumer sees it."""
    slot: int
    """That of its key, where keys are kept in order."""
    answer: Answer | None = None
    """The answer that must be written."""
    due_ms: int | None = None
    """When it shall be delivered again, if it is released, in milliseconds since the epoch; None
    for at once."""
    delivered: bool = False
    """Whether it was handed out."""

    def mark(self, answer: Answer, own: Mark) -> Mark:
        """What becomes of it by an answer, if it shall not be delivered later.

        Args:
            answer: the answer.
            own: the fate of what is acquired now, but for its deliveries.
        """
        if answer is Answer.DONE:
            return DONE
        held = own._replace(deliveries=self.deliveries)
        if answer is Answer.RENEW:
            return held
        return held.released(delivered=answer is Answer.RELEASE)
