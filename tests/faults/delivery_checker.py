"""The verdict on push delivery: from the history alone, whether workers kept their promises."""

from __future__ import annotations

import bisect
import collections
from collections.abc import Iterator

from .checker import Violation
from .history import Checkpoint, Delivery, History

__all__ = ["DELIVERY_KINDS", "check_deliveries"]

DELIVERY_KINDS = {
    "undelivered": "an ok message that a subscriber was not given, or never finished",
    "misdelivered": "a message that a subscriber was given but that is not in the log at that "
    "position",
    "disordered": "a message given to a subscriber for the first time after a later one",
    "premature": "a checkpoint beyond a message that its subscriber had not finished",
    "repeated": "a message given to a subscriber again after its checkpoint had passed it",
    "retreated": "a checkpoint that moved back",
}
"""What is looked for."""

Subscription = tuple[str, int]
"""A subscriber and a partition."""


def check_deliveries(history: History) -> list[Violation]:
    """Every violation that the history shows; none if the workers kept their promises."""
    deliveries: dict[Subscription, list[Delivery]] = collections.defaultdict(list)
    for delivery in sorted(history.deliveries, key=lambda delivery: delivery.at_s):
        deliveries[delivery.subscriber, delivery.partition].append(delivery)
    checkpoints: dict[Subscription, list[Checkpoint]] = collections.defaultdict(list)
    for checkpoint in history.checkpoints:
        checkpoints[checkpoint.subscriber, checkpoint.partition].append(checkpoint)
    subscribers = {subscription[0] for subscription in (*deliveries, *checkpoints)}
    ok = {token for put in history.puts if put.outcome == "ok" for token in put.tokens}
    violations: list[Violation] = []
    for subscription in sorted((name, p) for name in subscribers for p in history.counts):
        given, moves = deliveries[subscription], checkpoints[subscription]
        violations += _contents(history, ok, subscription, given)
        violations += _order(subscription, given)
        violations += _beyond(history, subscription, given, moves)
        violations += _repetitions(subscription, given, moves)
        violations += _retreats(subscription, moves)
    return violations


def _contents(
    history: History, ok: set[str], subscription: Subscription, given: list[Delivery]
) -> Iterator[Violation]:
    there = {read.id: read.token for read in history.final.get(subscription[1], [])}
    for delivery in given:
        for id_, token in delivery.messages:
            if there.get(id_) != token:
                yield Violation("misdelivered", f"{_name(subscription)}: {token} at {id_}")
    done = {id_ for delivery in given if delivery.done for id_, _ in delivery.messages}
    for id_ in sorted(there.keys() - done):
        if there[id_] in ok:
            yield Violation("undelivered", f"{_name(subscription)}: {there[id_]} at {id_}")


def _order(subscription: Subscription, given: list[Delivery]) -> Iterator[Violation]:
    highest = -1
    seen: set[int] = set()
    for delivery in given:
        for id_, token in delivery.messages:
            if id_ not in seen and id_ < highest:
                yield Violation(
                    "disordered", f"{_name(subscription)}: {token} at {id_} after {highest}"
                )
            seen.add(id_)
            highest = max(highest, id_)


def _beyond(
    history: History, subscription: Subscription, given: list[Delivery], moves: list[Checkpoint]
) -> Iterator[Violation]:
    """All that a checkpoint has passed was done with before the checkpoint was seen there."""
    done_s: dict[int, float] = {}
    for delivery in given:
        if delivery.done:
            for id_, _ in delivery.messages:
                done_s.setdefault(id_, delivery.at_s)
    reads = history.final.get(subscription[1], [])
    passed = 0
    for move in moves:
        end = bisect.bisect_left(reads, move.next, key=lambda read: read.id)
        for read in reads[passed:end]:
            if done_s.get(read.id, float("inf")) > move.at_s:
                yield Violation(
                    "premature", f"{_name(subscription)}: {move.next} beyond {read.token}"
                )
        passed = max(passed, end)


def _repetitions(
    subscription: Subscription, given: list[Delivery], moves: list[Checkpoint]
) -> Iterator[Violation]:
    """What comes again lies between the last checkpoint and what came before."""
    times = [move.at_s for move in moves]
    for delivery in given:
        count = bisect.bisect_left(times, delivery.at_s)
        for id_, token in delivery.messages:
            if count and id_ < moves[count - 1].next:
                yield Violation("repeated", f"{_name(subscription)}: {token} at {id_}")


def _retreats(subscription: Subscription, moves: list[Checkpoint]) -> Iterator[Violation]:
    highest = -1
    for move in moves:
        if move.next < highest:
            yield Violation("retreated", f"{_name(subscription)}: {move.next} after {highest}")
        highest = max(highest, move.next)


def _name(subscription: Subscription) -> str:
    return f"{subscription[0]} in partition {subscription[1]}"
