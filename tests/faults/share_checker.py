"""The verdict on share groups: from the history alone, whether each message had the fate that its
consumers gave it.

What a message says of its deliveries counts them up from one to the next, of any consumer. So these
numbers put all deliveries of a message into their order, whatever the clocks of processes say that
stood still.
"""

from __future__ import annotations

import collections
import itertools
from collections.abc import Iterator, Mapping, Sequence

from .checker import Violation
from .share_history import (
    ACKNOWLEDGE,
    DELIVERIES_MAX,
    FINAL,
    GROUPS,
    KEYED,
    LATER,
    LOCK_S,
    REASON,
    REJECT,
    RENEW,
    Answer,
    Handed,
    Place,
    ShareHistory,
)

__all__ = ["SHARE_KINDS", "check_shares"]

SHARE_KINDS = {
    "abandoned": "an ok message that no consumer of a share group acknowledged, and that is "
    "not a dead letter of the group",
    "misshared": "a message that a share consumer was given but that is not in the log at that "
    "position",
    "contended": "a message that a share consumer was given while another one had it, within the "
    "lock's time",
    "revived": "a message that a share group delivered again after it was acknowledged or rejected "
    "in time",
    "recounted": "deliveries of a message whose numbers do not grow: fewer are counted than there "
    "were",
    "overdelivered": "a message delivered more often than `deliveries_max`",
    "condemned": "a dead letter of a share group that no consumer rejected, and that was not "
    "delivered `deliveries_max` times",
    "hurried": "a delayed message that was delivered before its time",
    "overtaken": "a message delivered before an earlier one with its key was acknowledged or "
    "rejected, although the group keeps the order of keys",
}
"""What is looked for."""

Deliveries = Mapping[Place, Sequence[Handed]]
"""The deliveries of each message to the consumers of one group, in the order of their numbers."""


def check_shares(history: ShareHistory) -> list[Violation]:
    """Every violation that the history shows; none if the share groups kept their promises."""
    violations: list[Violation] = []
    for group in GROUPS:
        given: dict[Place, list[Handed]] = collections.defaultdict(list)
        for handed in history.handed:
            if handed.group == group:
                given[handed.place].append(handed)
        for each in given.values():
            each.sort(key=lambda handed: (handed.deliveries, handed.at_s))
        violations += _contents(history, group, given)
        violations += _letters(history, group, given)
        for each in given.values():
            violations += _counts(each)
            violations += _holders(each)
            violations += _ends(each)
        if group == KEYED:
            violations += _keys(history, given)
    return violations


def _contents(history: ShareHistory, group: str, given: Deliveries) -> Iterator[Violation]:
    letters = history.letters.get(group, {})
    ok = {token for put in history.puts if put.outcome == "ok" for token in put.tokens}
    there = {logged.token for logged in history.final.values()}
    for token in sorted(ok - there):
        yield Violation("abandoned", f"{group}: {token} is not in the log")
    for place, logged in sorted(history.final.items()):
        done = any(_said(handed, ACKNOWLEDGE) for handed in given.get(place, ()))
        if logged.token in ok and place not in letters and not done:
            yield Violation("abandoned", f"{group}: {logged.token} at {place}")
    for place, each in given.items():
        logged = history.final.get(place)
        for handed in each:
            if logged is None or logged.token != handed.token:
                yield Violation("misshared", f"{_name(handed)}: {handed.token}")
            elif logged.due_ms is not None and handed.wall_ms < logged.due_ms:
                early_ms = logged.due_ms - handed.wall_ms
                yield Violation("hurried", f"{_name(handed)}: {early_ms} ms before its time")


def _letters(history: ShareHistory, group: str, given: Deliveries) -> Iterator[Violation]:
    for place, letter in sorted(history.letters.get(group, {}).items()):
        if letter.reason == REASON:
            deserved = any(_said(handed, REJECT) for handed in given.get(place, ()))
        else:
            deserved = letter.attempts >= DELIVERIES_MAX
        if not deserved:
            yield Violation("condemned", f"{group}: {place}: {letter}")


def _counts(given: Sequence[Handed]) -> Iterator[Violation]:
    for before, after in itertools.pairwise(given):
        if after.deliveries == before.deliveries or after.at_s < before.asked_s:
            yield Violation("recounted", f"{_name(after)}, and {_name(before)}")
    if given[-1].deliveries > DELIVERIES_MAX:
        yield Violation("overdelivered", _name(given[-1]))


def _holders(given: Sequence[Handed]) -> Iterator[Violation]:
    """A message has one holder at a time, until the holder answers or knows its lock to be over."""
    for before, after in itertools.pairwise(given):
        over_s = min(_locked_until_s(before), _let_go_s(before))
        if after.at_s < over_s and after.consumer != before.consumer:
            yield Violation(
                "contended", f"{_name(after)}: {over_s - after.at_s:.3f} s too early, {before}"
            )


def _ends(given: Sequence[Handed]) -> Iterator[Violation]:
    """No delivery follows the one of which a program said in time that it is the last."""
    for number, handed in enumerate(given):
        ended_s = _done_s(handed)
        for other_number, other in enumerate(given):
            if ended_s is not None and (other_number > number or other.asked_s > ended_s):
                yield Violation("revived", f"{_name(other)}: it was done with {_name(handed)}")


def _keys(history: ShareHistory, given: Deliveries) -> Iterator[Violation]:
    """A message waits for those before it with its key. One that is delayed waits for its time
    alone, and none waits for it.
    """
    letters = history.letters.get(KEYED, {})
    exhausted = {place for place, letter in letters.items() if letter.reason != REASON}
    before: dict[tuple[int, str], list[Place]] = collections.defaultdict(list)
    for place, logged in sorted(history.final.items()):
        if logged.key is None or logged.due_ms is not None:
            continue
        earlier = before[place[0], logged.key]
        for handed in given.get(place, ()):
            for other in earlier:
                if not _is_over(given.get(other, ()), handed, exhausted=other in exhausted):
                    yield Violation(
                        "overtaken", f"{_name(handed)}: before {history.final[other].token}"
                    )
        earlier.append(place)


def _is_over(earlier: Sequence[Handed], handed: Handed, *, exhausted: bool) -> bool:
    """Whether a message may have been over when a later one with its key was delivered.

    It was for the program, which said so. If that came too late for the group, both come again.
    """
    if any(_said(each, LATER) for each in earlier):
        return True
    if _done_s(handed) is not None and any(each.asked_s > handed.at_s for each in earlier):
        return False
    before = [number for number, each in enumerate(earlier) if each.at_s <= handed.asked_s]
    answers = map(_final, earlier[max(before, default=0) :])
    return exhausted or any(a is not None and a.at_s <= handed.at_s for a in answers)


def _done_s(handed: Handed) -> float | None:
    """When the group was done with a message for certain, since that was written in time."""
    answer = _final(handed)
    if answer is None or answer.written_s is None:
        return None
    _, ended_s = answer.written_s
    # Else others may have had it by then, and the answer counted for nothing.
    return ended_s if ended_s < _locked_until_s(handed) else None


def _final(handed: Handed) -> Answer | None:
    """The answer that ends a message; None if it was released, or has no answer. What was said
    after that counts for nothing.
    """
    first = next((answer for answer in handed.answers if answer.kind != RENEW), None)
    return first if first is not None and first.kind in FINAL else None


def _said(handed: Handed, kind: str) -> bool:
    return any(answer.kind == kind for answer in handed.answers)


def _locked_until_s(handed: Handed) -> float:
    """Until when nobody else may have the message, unless it is answered."""
    until_s = handed.asked_s + handed.holds_s
    for answer in handed.answers:
        if answer.kind == RENEW and answer.written_s is not None:
            _, ended_s = answer.written_s
            if ended_s < until_s:  # Else another consumer may have been faster.
                until_s = answer.at_s + LOCK_S
    return until_s


def _let_go_s(handed: Handed) -> float:
    """When the program began to let the message go."""
    answers = (answer.at_s for answer in handed.answers if answer.kind != RENEW)
    left_s = float("inf") if handed.left_s is None else handed.left_s
    return min(next(answers, left_s), left_s)


def _name(handed: Handed) -> str:
    partition, id_ = handed.place
    return (
        f"{handed.group}: {id_} in partition {partition}, delivery {handed.deliveries} to "
        f"{handed.process} ({handed.consumer})"
    )
