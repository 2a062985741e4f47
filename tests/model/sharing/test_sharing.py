"""Share groups keep their promises, and need every rule for that."""

from __future__ import annotations

import pytest

from hqueue.sharing import acquisition, hands, shared_consumption
from tests.model.groups.explorer import CounterexampleError, explore

from .rules import Bounds, Mutant, mutated
from .world import World

ONE = (1.0,)
TWO = (None, None)
KEYS = (b"k", b"k")
BOUNDS = {
    "two part a message": Bounds(),
    "one stands still for longer than its lock": Bounds(ticks=1),
    "a request gets no answer": Bounds(failures=1),
    "a renewal gets no answer": Bounds(ONE, TWO, failures=1, renewals=1),
    "a release gets no answer": Bounds(ONE, TWO, failures=1, releases=1),
    "a call is cut off": Bounds(ONE, TWO, acquire_max=2, cancelled=1),
    "one crashes": Bounds(crashes=1, ticks=1),
    "one closes, and another begins": Bounds(closes=1, later=1),
    "what waits lapses": Bounds(ONE, TWO, acquire_max=2, ticks=1),
    "a message is rejected by one that crashes": Bounds(ONE, crashes=1, later=1, rejections=1),
    "a message is released too often": Bounds(ONE, deliveries_max=1, failures=1, releases=1),
    "messages of a key keep their order": Bounds(ONE, KEYS, True, 2, releases=1, failures=1),
}
LARGE = {
    "two part two messages": Bounds(keys=TWO),
    "one stands still again and again": Bounds(ticks=2),
    "a lock is renewed": Bounds(renewals=1, ticks=2),
    "one stands still, and a request gets no answer": Bounds(ticks=1, failures=1),
    "of two messages one waits": Bounds(keys=TWO, acquire_max=2, ticks=1),
    "two share the messages of a key": Bounds((1.0, 0.96), KEYS, True, 2, ticks=1),
    "two requests get no answer": Bounds(ONE, TWO, failures=2, renewals=1),
    "three consumers": Bounds((1.0, 0.96, 1.0), ticks=1),
}
STATES_MAX = 1_000_000


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("ERROR", "hqueue")


@pytest.mark.parametrize("bounds", BOUNDS.values(), ids=BOUNDS)
def test_share_groups_keep_their_promises(bounds: Bounds) -> None:
    assert explore(World(bounds), states_max=STATES_MAX) > 50


@pytest.mark.larger
@pytest.mark.parametrize("bounds", LARGE.values(), ids=LARGE)
def test_share_groups_keep_their_promises_when_more_happens(bounds: Bounds) -> None:
    assert explore(World(bounds), states_max=STATES_MAX) > 50


MUTANTS = {
    "a write changes only the version that it names": Mutant(
        "one stands still for longer than its lock", compares_versions=False
    ),
    "the record is read again after a write without an answer": Mutant(
        "a request gets no answer",
        (("        self._known = None  # Until the write's answer has come.\n", ""),),
    ),
    "a lock of another is over when its very write has been seen for so long": Mutant(
        "one stands still again and again",
        (
            (
                "            (span.mark.holder, span.mark.stamp)\n",
                "            (span.mark.holder, 0)\n",
            ),
            ("self._seen.get((mark.holder, mark.stamp),", "self._seen.get((mark.holder, 0),"),
        ),
    ),
    "each write has a stamp of its own": Mutant(
        "one stands still again and again",
        (("        self._stamp += 1\n        own", "        own"),),
    ),
    "a lock counts from before its write": Mutant(
        "one stands still again and again",
        (
            ("        sent_ms = self._clock.monotonic_ms()\n", ""),
            (
                "        version = written[self.path]\n",
                "        version = written[self.path]\n"
                "        sent_ms = self._clock.monotonic_ms()\n",
            ),
        ),
    ),
    "others wait for longer than the lock": Mutant(
        "one stands still for longer than its lock",
        (("CLOCKS_DIFFER_BY = 1.05", "CLOCKS_DIFFER_BY = 1.0"),),
    ),
    "a lock is waited for": Mutant(
        "two part a message", (("self._lapses_at_ms(mark) <= now_ms", "True"),)
    ),
    "an answer is kept until it is known to be written": Mutant(
        "a release gets no answer",
        (
            (
                "        self._known = None  # Until",
                "        self._confirm(answers, 0.0)\n        self._known = None  # Until",
            ),
            ("        self._confirm(answers, sent_ms + self._lock_ms)\n", ""),
        ),
    ),
    "what was never handed out counts as no delivery": Mutant(
        "what waits lapses",
        (("Answer.RELEASE if held.delivered else Answer.RETURN", "Answer.RELEASE"),),
    ),
    "a write that renews acquires nothing": Mutant(
        "a renewal gets no answer", (("messages_max if only_done else 0", "messages_max"),)
    ),
    "what it has only by the record is looked for": Mutant(
        "a renewal gets no answer", ((" or self._known.strays", ""),)
    ),
    "what it has only by the record is given back": Mutant(
        "a renewal gets no answer",
        (("        if not ids:\n", "        if False:\n"),),
        acquisition,
    ),
    "what was given back so counts as no delivery": Mutant(
        "a request gets no answer",
        (("released(delivered=False)", "released(delivered=True)"),),
        acquisition,
    ),
    "what has waited for half its lock is not handed out": Mutant(
        "one stands still for longer than its lock",
        (("        self._return_old()\n", ""),),
        hands,
    ),
    "messages of a key wait for one another": Mutant(
        "messages of a key keep their order",
        (("(slot != NO_KEY and slot in busy)", "False"),),
        hands,
    ),
    "what follows a released message is given back": Mutant(
        "messages of a key keep their order",
        (
            (
                "            self._return_all_of(slot_of(message))\n        return True",
                "            pass\n        return True",
            ),
        ),
        hands,
    ),
    "a dead letter is put before the group is done with its message": Mutant(
        "a message is rejected by one that crashes",
        (
            (
                "                yield hands.letters.put.asked(rejections)\n",
                "                pass\n",
            ),
            (
                "        self._report(hands)\n        if failure is not None:\n",
                "        if rejections:\n"
                "            yield hands.letters.put.asked(rejections)\n"
                "        if failure is not None:\n",
            ),
        ),
        shared_consumption,
    ),
    "a dead letter is counted": Mutant(
        "a message is rejected by one that crashes",
        (("Answer.EXHAUSTED if each.exhausted else Answer.REJECTED", "Answer.DONE"),),
        hands,
    ),
    "only a dead letter is counted": Mutant(
        "two part a message", (("counts[Answer.REJECTED]", "counts[Answer.DONE]"),), acquisition
    ),
}
"""Where each rule is seen to be needed."""


@pytest.mark.thorough("that each rule is needed; `make check` shows that all of them suffice")
@pytest.mark.parametrize("rule", MUTANTS)
def test_every_rule_is_needed(rule: str) -> None:
    mutant = MUTANTS[rule]
    world = World({**BOUNDS, **LARGE}[mutant.bounds], mutated(mutant, rule))
    with pytest.raises(CounterexampleError):
        explore(world, states_max=STATES_MAX)
