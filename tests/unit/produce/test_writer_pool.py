"""A queue's writers, each used by one at a time."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

from hqueue.errors import Outcome, StoreUnavailableError
from hqueue.log.steps import Work
from hqueue.produce.writer_pool import WriterPool
from hqueue.runtime.clock import SYSTEM_CLOCK, Deadline
from hqueue.runtime.steps import Pause, carry_out


def test_the_error_of_one_whose_turn_does_not_come_says_what_hbase_may_be_doing() -> None:
    made: Any = SimpleNamespace(partition=0)
    writers = WriterPool(1, lambda partition: made)

    def append(writer: object) -> Work[None]:
        yield Pause(0)

    first = writers.use(0, Deadline(SYSTEM_CLOCK, 1), append)
    next(first)
    with ThreadPoolExecutor(1) as threads:
        second = writers.use(0, Deadline(SYSTEM_CLOCK, 1), append)
        error = threads.submit(carry_out, second, lambda step: None).exception(60)
    first.close()
    assert isinstance(error, StoreUnavailableError)
    assert error.outcome is Outcome.NOT_APPLIED
    assert "HBase answers slowly or not at all" in error.text
