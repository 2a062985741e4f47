"""What an answer to a call means, and what follows from it: pure decisions for push and for hubs.

A call is repeated, with the same messages, until its subscriber is done with them or they are dead
letters:

    answer                              what follows
    done                                the next call
    dead letter                         its messages become dead letters, then the next call
    retry, or an unknown status         the same call, after a pause; its messages become dead
                                        letters after `attempts_max` such answers
    one for each message                the messages that it rejects become dead letters, and no
                                        others. If it retries from a message, a call from there on
                                        follows after a pause; otherwise the next call. That message
                                        alone becomes a dead letter after `attempts_max` retries
    no answer                           the same call, after a pause; this is not an attempt. A call
                                        that the subscriber got and did not answer counts against
                                        its messages, as `hqueue_workers.delivery.suspects` decides
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from hqueue.metadata import DeliveryOptions
from hqueue.push.answers import MessageAnswers, Status
from hqueue.runtime.backoff import Backoff
from hqueue_workers.delivery.suspects import Verdict
from hqueue_workers.delivery.wire import Call, Reply

__all__ = ["UNTRIED", "Decision", "Tries"]

REJECTED = "rejected by the subscriber"
USED_UP = "the subscriber's attempts are used up"
NO_ANSWER = "the subscriber did not answer {} calls with this message alone"


class Tries(NamedTuple):
    """The earlier tries of the next call.

    Args:
        end: where the call ends, if it repeats one with the same messages; None for a new call.
        attempts: how often the subscriber has answered its first message, and not with *done*.
        failures: how often in a row there was no answer.
        reason: why the messages are not done, as the subscriber last said; empty if it did not say.
        alone: how many of the attempts named the first message, and so don't count for the others.
    """

    end: int | None = None
    attempts: int = 0
    failures: int = 0
    reason: str = ""
    alone: int = 0

    def answered(self, reply: Reply, call: Call, options: DeliveryOptions) -> Decision:
        """What follows from an answer to a call."""
        if reply.each is not None:
            return self._answered_each(reply.each, reply.reason, call, options)
        status, count = _status_of(reply), call.count
        if status is Status.DONE:
            return Decision(UNTRIED, done=count)
        said = reply.reason or ("" if status is Status.DEAD_LETTER else self.reason)
        tries = Tries(call.end, self.attempts + 1, 0, said, self.alone)
        if status is Status.DEAD_LETTER:
            dead = dict.fromkeys(range(count), _because(REJECTED, said))
            return Decision(tries, done=count, dead=dead, rejected=count)
        if _are_used_up(tries.attempts - tries.alone, options):
            dead = dict.fromkeys(range(count), _because(USED_UP, said))
            return Decision(tries, done=count, dead=dead, retried=count)
        if _are_used_up(tries.attempts, options):  # Most of them named the first message alone.
            return Decision(tries, done=1, dead={0: _because(USED_UP, said)}, retried=count)
        return Decision(tries, _backoff_ms(options, tries.attempts), retried=count)

    def _answered_each(
        self, each: MessageAnswers, reason: str, call: Call, options: DeliveryOptions
    ) -> Decision:
        """What follows from an answer for each message."""
        dead = {index: _because(REJECTED, why) for index, why in each.rejected.items()}
        rejected, first = len(dead), each.retry_from
        again = Tries(call.end, self.attempts + 1, 0, reason or self.reason, self.alone + 1)
        if first is None:
            return Decision(again, done=call.count, dead=dead, rejected=rejected)
        # A message other than the first has not been at the head of a call before.
        after = Tries(call.end, 1, 0, reason, 1) if first else again
        retried = call.count - first
        if _are_used_up(after.attempts, options):
            dead[first] = _because(USED_UP, after.reason)
            return Decision(again, done=first + 1, dead=dead, retried=retried, rejected=rejected)
        delay_ms = each.retry_delay_ms
        pause_ms = _backoff_ms(options, after.attempts) if delay_ms is None else delay_ms
        if not first:
            return Decision(again, pause_ms, retried=retried)
        return Decision(again, pause_ms, first, dead, after, retried, rejected)

    def unanswered(
        self, call: Call, options: DeliveryOptions, verdict: Verdict | None = None
    ) -> Decision:
        """What follows when a call had no answer.

        Args:
            call: the call.
            options: the subscriber's delivery options.
            verdict: what this says about its messages; None if it says nothing.
        """
        end = call.end if verdict is None else call.upto(verdict.messages).end
        tries = self._replace(end=end, failures=self.failures + 1)
        pause_ms = _backoff_ms(options, tries.failures)
        if verdict is None or not verdict.poison or verdict.suspected is None:
            return Decision(tries, pause_ms)
        times = verdict.suspected.count
        dead = {0: NO_ANSWER.format(times)}
        tries = tries._replace(attempts=self.attempts + times)
        return Decision(tries, pause_ms, call.count, dead, tries.passed())

    def passed(self) -> Tries:
        """The tries when these messages need not come again. Failures are kept, because it is not
        known whether the subscriber answers.
        """
        return Tries(failures=self.failures) if self.failures else UNTRIED


UNTRIED = Tries()
"""A new call comes next, and the last one was answered."""


class Decision(NamedTuple):
    """What follows from a call.

    Args:
        tries: the tries to keep if the call is repeated with the same messages.
        pause_ms: the pause before the next call; 0 for none.
        done: how many messages, from the first on, need not come again; None if all must.
        dead: which of these become dead letters, by their number in the call, and why.
        after: the tries to keep for the call that begins after these.
        retried: how many messages the subscriber wants again.
        rejected: how many messages it has rejected.
    """

    tries: Tries
    pause_ms: float = 0.0
    done: int | None = None
    dead: Mapping[int, str] = {}
    after: Tries = UNTRIED
    retried: int = 0
    rejected: int = 0


def _are_used_up(attempts: int, options: DeliveryOptions) -> bool:
    return options.attempts_max is not None and attempts >= options.attempts_max


def _backoff_ms(options: DeliveryOptions, times: int) -> float:
    """The pause before repeating a call that has failed this many times."""
    return Backoff(options.backoff_ms_min, options.backoff_ms_max).after(times)


def _status_of(reply: Reply) -> Status:
    """A reply's status. An unknown status counts as *retry*."""
    try:
        return Status(reply.status)
    except ValueError:
        return Status.RETRY


def _because(why: str, said: str) -> str:
    return f"{why}: {said}" if said else why
