"""What an answer to a call means, and what follows from it: decided once, for push and for hubs.

Nothing here waits or asks anybody. A call is made again, with the same messages, until its
subscriber is done with them or they lie with the dead letters:

    answer                              what follows
    done                                the next call
    dead letter                         its messages become dead letters, then the next call
    retry, or an unknown status         the same call, after a pause; dead letters after
                                        `attempts_max` of them
    none                                the same call, after a pause; this is not an attempt
"""

from __future__ import annotations

from typing import NamedTuple

from hqueue.metadata import DeliveryOptions
from hqueue.push.listener import Status
from hqueue.runtime.backoff import Backoff
from hqueue_workers.delivery.wire import Reply

__all__ = ["UNTRIED", "Decision", "Tries"]

REJECTED = "rejected by the subscriber"
USED_UP = "the subscriber's attempts are used up"


class Tries(NamedTuple):
    """How the call that comes next was answered before.

    Args:
        end: where a call ended that is made once more, with the same messages; None if a new one
            comes next.
        attempts: how often it was answered, and not with *done*.
        failures: how often in a row there was no answer.
        reason: what the subscriber said last of why the messages are not done; empty if nothing.
    """

    end: int | None = None
    attempts: int = 0
    failures: int = 0
    reason: str = ""

    def answered(self, reply: Reply, end: int, options: DeliveryOptions) -> Decision:
        """What follows from an answer to the call that ended there."""
        status = _status_of(reply)
        if status is Status.DONE:
            return Decision(UNTRIED, status)
        said = reply.reason or ("" if status is Status.DEAD_LETTER else self.reason)
        tries = Tries(end, self.attempts + 1, 0, said)
        if status is Status.DEAD_LETTER:
            return Decision(tries, status, dead=_because(REJECTED, said))
        if options.attempts_max is not None and tries.attempts >= options.attempts_max:
            return Decision(tries, status, dead=_because(USED_UP, said))
        return Decision(tries, status, _backoff_ms(options, tries.attempts))

    def unanswered(self, end: int, options: DeliveryOptions) -> Decision:
        """What follows when the call that ended there had no answer."""
        tries = self._replace(end=end, failures=self.failures + 1)
        return Decision(tries, None, _backoff_ms(options, tries.failures))

    def passed(self) -> Tries:
        """The messages need not come again; whether the subscriber answers is not known by that."""
        return Tries(failures=self.failures) if self.failures else UNTRIED


UNTRIED = Tries()
"""A new call comes next, and the last one was answered."""


class Decision(NamedTuple):
    """What follows from a call.

    Args:
        tries: to be kept until the next call is made.
        status: the answer's; None if there was none.
        pause_ms: until the call is made once more; 0 if it is not, or at once.
        dead: why the messages go to the dead letters; None if they don't.
    """

    tries: Tries
    status: Status | None
    pause_ms: float = 0.0
    dead: str | None = None


def _backoff_ms(options: DeliveryOptions, times: int) -> float:
    """The pause before a call is made again that failed this many times."""
    return Backoff(options.backoff_ms_min, options.backoff_ms_max).after(times)


def _status_of(reply: Reply) -> Status:
    """A reply's status. An unknown one makes the call again."""
    try:
        return Status(reply.status)
    except ValueError:
        return Status.RETRY


def _because(why: str, said: str) -> str:
    return f"{why}: {said}" if said else why
