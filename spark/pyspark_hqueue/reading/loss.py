"""Messages that are gone before they were read."""

from __future__ import annotations

from hqueue import HQueueError, Outcome
from hqueue.runtime.logs import Log

__all__ = ["DataLossError", "report_loss"]

logger = Log(__name__)


class DataLossError(HQueueError):
    """Messages that a read should have given expired, or were truncated away, before it reached
    them.

    Facts: `queue`, `partition`, and `lost`, their number by the log's ordinals, of all topics.
    """

    default_outcome = Outcome.NOT_APPLIED


def report_loss(text: str, *, fail: bool, queue: str, partition: int, lost: int) -> None:
    """Raise what was lost, or log it and go on, as ``failOnDataLoss`` wants it."""
    error = DataLossError(
        f"{text}; set failOnDataLoss to false (for hqueue pipeline, --allow-data-loss) to go on "
        "without them",
        queue=queue,
        partition=partition,
        lost=lost,
    )
    if fail:
        raise error
    logger.warning("%s [queue=%r, partition=%d, lost=%d]", text, queue, partition, lost)
