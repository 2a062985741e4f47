"""Whether topics kept their promises (docs/inside-hubs.md), from what was tried and seen alone."""

from __future__ import annotations

import bisect
import collections
import itertools
from collections.abc import Iterable, Iterator

from .checker import Violation
from .topic_history import TopicHistory

__all__ = ["TOPIC_KINDS", "check_topics"]

TOPIC_KINDS = {
    "unpublished": "a published message that is not in its topic, or whose ID there is "
    "not the one that its publish returned",
    "unasked": "a message that nobody published to this topic, or whose publish was refused",
    "republished": "a message that a topic has more than once",
    "uncounted": "sequence numbers of a publisher that a topic has with a gap or out of order",
    "misordered": "messages of a topic whose IDs do not grow; messages of a publisher that are "
    "not in the order in which it published them; a message that was first tried after another was "
    "known to be in the topic, but lies before it",
    "unranged": "a fault that `hqueue verify` finds in the log or in the topics' ranges",
    "misgiven": "a message that a subscriber was given but that its topic does not have at that "
    "position",
    "skipped": "messages of a topic that a subscriber was given with a gap, or in another order",
    "ungiven": "a message of a topic that its subscriber was never given",
    "forgotten": "a subscription that began below a cursor that had been stored",
    "regiven": "a message at or below the first cursor of its subscription, or at or below a "
    "cursor that had been stored long before",
}
"""What is looked for."""

LATE_S = 45.0
"""A call of an earlier owner may come in after a later one's: its time-out bounds that."""


class _Highest:
    """The highest number, as a cursor or a place, that was known before a time; -1 if none was.

    Args:
        known: when each was known, and the number.
    """

    def __init__(self, known: Iterable[tuple[float, int]] = ()) -> None:
        self._times: list[float] = []
        self._numbers = [-1]
        for at_s, number in sorted(known):
            self._times.append(at_s)
            self._numbers.append(max(number, self._numbers[-1]))

    def before(self, at_s: float) -> int:
        return self._numbers[bisect.bisect_left(self._times, at_s)]


_NOTHING = _Highest()


def check_topics(history: TopicHistory) -> list[Violation]:
    """Every violation that the history shows; none if topics, hubs and subscriptions are right."""
    violations = [Violation("unranged", finding) for finding in history.findings]
    for topic, final in sorted(history.final.items()):
        violations += _contents(history, topic, final)
        violations += _numbers(history, topic, final)
        violations += _order(history, topic, final)
        violations += _precedence(history, topic, final)
        violations += _given(history, topic, final)
        violations += _cursors(history, topic)
    return violations


def _contents(
    history: TopicHistory, topic: str, final: list[tuple[int, str]]
) -> Iterator[Violation]:
    there = {token: id_ for id_, token in final}
    tried: set[str] = set()
    for publish in history.publishes:
        if publish.topic != topic:
            continue
        if publish.outcome != "fail":
            tried.update(publish.tokens)
        if publish.outcome != "ok":
            continue
        for token in publish.tokens:
            if token not in there:
                yield Violation("unpublished", f"{topic}: {token} is not there")
        told = zip(reversed(publish.tokens), reversed(publish.ids))  # noqa: B905  (the last ones')
        for token, id_ in told:
            if there.get(token, id_) != id_:
                yield Violation("unpublished", f"{topic}: {token} at {there[token]}, not {id_}")
    counts = collections.Counter(token for _, token in final)
    for token, count in counts.items():
        if token not in tried:
            yield Violation("unasked", f"{topic}: {token}")
        if count > 1:
            yield Violation("republished", f"{topic}: {token} {count} times")


def _numbers(
    history: TopicHistory, topic: str, final: list[tuple[int, str]]
) -> Iterator[Violation]:
    """Those of a publisher that numbers what it publishes lie there as they count up from 0."""
    numbers: dict[str, tuple[str, int]] = {}
    for publish in history.publishes:
        if publish.topic == topic and publish.first is not None:
            publisher = publish.process.rpartition("-")[0]
            for index, token in enumerate(publish.tokens):
                numbers[token] = publisher, publish.first + index
    wanted: dict[str, int] = collections.defaultdict(int)
    seen: set[str] = set()
    for _, token in final:
        if token in numbers and token not in seen:
            seen.add(token)
            publisher, number = numbers[token]
            if number != wanted[publisher]:
                yield Violation(
                    "uncounted", f"{topic}: {token} of {publisher} for number {wanted[publisher]}"
                )
            wanted[publisher] = number + 1


def _order(history: TopicHistory, topic: str, final: list[tuple[int, str]]) -> Iterator[Violation]:
    for (before, _), (after, token) in itertools.pairwise(final):
        if after <= before:
            yield Violation("misordered", f"{topic}: {token} at {after} behind {before}")
    place = {token: index for index, (_, token) in enumerate(final)}
    last: dict[str, int] = {}
    for publish in history.publishes:
        if publish.topic != topic or publish.outcome != "ok":
            continue
        for token in publish.tokens:
            at = place.get(token, -1)
            if at < 0:
                continue
            if at < last.get(publish.process, -1):
                yield Violation("misordered", f"{topic}: {token} of {publish.process}")
            last[publish.process] = at


def _precedence(
    history: TopicHistory, topic: str, final: list[tuple[int, str]]
) -> Iterator[Violation]:
    """Whichever publisher it is: what was first tried after a message was there lies behind it."""
    place = {token: index for index, (_, token) in enumerate(final)}
    tried_s: dict[str, float] = {}
    there: list[tuple[float, int]] = []
    for publish in history.publishes:
        if publish.topic != topic:
            continue
        for token in publish.tokens:
            tried_s[token] = min(publish.began_s, tried_s.get(token, publish.began_s))
        if publish.outcome == "ok" and publish.ended_s is not None:
            last = max(place.get(token, -1) for token in publish.tokens)
            there.append((publish.ended_s, last))
    highest = _Highest(there)
    for token, began_s in tried_s.items():
        if token in place and place[token] < highest.before(began_s):
            yield Violation("misordered", f"{topic}: {token} before what was there already")


def _given(history: TopicHistory, topic: str, final: list[tuple[int, str]]) -> Iterator[Violation]:
    """A subscription gives the topic's messages, from its first cursor on, without a gap."""
    ids = [id_ for id_, _ in final]
    there = dict(final)
    reached: dict[str, int] = {}
    """By subscriber: how many of the topic's messages lie at or below the highest that it had."""
    known: dict[str, list[tuple[float, int]]] = collections.defaultdict(list)
    for attached in history.attached:
        if attached.topic == topic:
            reached.setdefault(attached.subscriber, bisect.bisect_right(ids, attached.consumed))
            known[attached.subscriber].append((attached.ended_s, attached.consumed))
    for cursor in history.cursors:
        if cursor.topic == topic:
            known[cursor.subscriber].append((cursor.at_s, cursor.consumed))
    highest = {subscriber: _Highest(cursors) for subscriber, cursors in known.items()}
    for given in history.given:
        if given.topic != topic:
            continue
        name = f"{given.subscriber} of {topic}"
        wrong = [(id_, token) for id_, token in given.messages if there.get(id_) != token]
        if wrong:
            yield Violation("misgiven", f"{name}: {wrong[0]}")
            continue
        first = bisect.bisect_left(ids, given.messages[0][0])
        until = first + len(given.messages)
        if [id_ for id_, _ in given.messages] != ids[first:until]:
            yield Violation("skipped", f"{name}: {given.messages[0][0]} and what came with it")
        if first > reached.get(given.subscriber, 0):
            missed = ids[reached.get(given.subscriber, 0)]
            yield Violation("skipped", f"{name}: {missed} before {given.messages[0][0]}")
        reached[given.subscriber] = max(reached.get(given.subscriber, 0), until)
        below = highest.get(given.subscriber, _NOTHING).before(given.at_s - LATE_S)
        if given.messages[0][0] <= below:
            yield Violation(
                "regiven", f"{name}: {given.messages[0][0]}, with the cursor at {below}"
            )
    for subscriber, count in reached.items():
        if count < len(ids):
            yield Violation("ungiven", f"{subscriber} of {topic}: {final[count]}")


def _cursors(history: TopicHistory, topic: str) -> Iterator[Violation]:
    """Where a subscription begins is no lower than any cursor that was stored before."""
    stored: dict[str, list[tuple[float, int]]] = collections.defaultdict(list)
    for cursor in history.cursors:
        if cursor.topic == topic:
            stored[cursor.subscriber].append((cursor.at_s, cursor.consumed))
    highest = {subscriber: _Highest(cursors) for subscriber, cursors in stored.items()}
    for attached in history.attached:
        if attached.topic != topic:
            continue
        before = highest.get(attached.subscriber, _NOTHING).before(attached.began_s)
        if attached.consumed < before:
            yield Violation(
                "forgotten", f"{attached.subscriber} of {topic}: {attached.consumed} after {before}"
            )
