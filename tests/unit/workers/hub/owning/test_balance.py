"""How hubs share topics: by themselves, and many of them with the same code, simulated."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from hqueue_workers.hub.owning.balance import (
    RELEASED_MAX,
    STAY_MS,
    STAY_MS_MAX,
    TOLERANCE,
    OwnedTopic,
    choose_any,
    choose_hub,
    load_of,
    topics_to_release,
)

LATER_MS = 10 * STAY_MS


def owned(*loads: float, since_ms: float = 0.0) -> list[OwnedTopic]:
    return [OwnedTopic(f"t{n}", load, since_ms) for n, load in enumerate(loads)]


def released(own: float, others: list[float], topics: list[OwnedTopic], now_ms: float) -> list[str]:
    return topics_to_release(own, others, topics, len(topics), now_ms)


class TestChoosing:
    def test_hubs_without_load_are_alike(self) -> None:
        chance = random.Random(1)
        chosen = Counter(choose_hub({"a": 0, "b": 0, "c": 0}, chance) for _ in range(3_000))
        assert set(chosen) == {"a", "b", "c"}
        assert min(chosen.values()) > 800

    def test_one_with_twice_the_mean_gets_next_to_nothing(self) -> None:
        chance = random.Random(1)
        chosen = Counter(choose_hub({"a": 2_000, "b": 500, "c": 500}, chance) for _ in range(3_000))
        assert chosen["a"] < 10

    def test_a_new_hub_gets_more_than_the_others_but_not_all(self) -> None:
        chance = random.Random(1)
        loads = {f"hub{n}": 1_000 for n in range(10)} | {"new": 0}
        chosen = Counter(choose_hub(loads, chance) for _ in range(3_000))
        assert 0.7 < chosen["new"] / 3_000 < 0.9

    def test_a_uniform_choice_takes_each_as_often_as_the_others(self) -> None:
        chance = random.Random(1)
        loads = {"a": 2_000, "b": 500, "c": 0}
        chosen = Counter(choose_any(loads, chance) for _ in range(3_000))
        assert min(chosen.values()) > 900

    def test_one_hub_gets_all(self) -> None:
        assert choose_hub({"a": 7}, random.Random(1)) == "a"


class TestReleasing:
    def test_a_hub_alone_keeps_all(self) -> None:
        assert released(1e6, [], owned(1, 1), LATER_MS) == []

    def test_near_the_mean_nothing_moves(self) -> None:
        assert released(105, [100, 100], owned(*[1] * 105), LATER_MS) == []

    def test_an_overloaded_hub_gives_up_half_of_what_it_has_more(self) -> None:
        assert len(released(130, [100, 100], owned(*[1] * 130), LATER_MS)) == 10

    def test_one_above_the_mean_gives_up_something_when_another_is_short(self) -> None:
        topics = owned(*[1] * 104)
        assert released(104, [104, 104, 104], topics, LATER_MS) == []
        assert len(released(104, [104, 104, 50], topics, LATER_MS)) == 6

    def test_one_below_the_mean_gives_up_nothing(self) -> None:
        assert released(90, [150, 60], owned(*[1] * 90), LATER_MS) == []

    def test_no_more_than_a_few_at_a_time(self) -> None:
        assert len(released(300, [0, 0], owned(*[1] * 300), LATER_MS)) == RELEASED_MAX
        assert len(released(9_000, [0, 0], owned(*[1] * 9_000), LATER_MS)) == 180

    def test_what_has_just_come_stays(self) -> None:
        young = owned(*[1] * 100, since_ms=LATER_MS - STAY_MS + 1)
        assert released(100, [0, 0], young, LATER_MS) == []
        assert released(100, [0, 0], young, LATER_MS + 1) != []

    def test_those_of_much_load_go_first(self) -> None:
        assert released(100, [40, 40], owned(1, 20, 5, 3), LATER_MS) == ["t1"]

    def test_one_that_is_most_of_the_load_stays_and_others_go(self) -> None:
        assert released(1_010, [10, 10], owned(1_000, 5, 5), LATER_MS) == ["t1", "t2"]

    def test_one_topic_goes_although_it_is_more_than_half_of_the_surplus(self) -> None:
        assert released(4, [2, 3], owned(1, 1, 1, 1), LATER_MS) == ["t0"]

    def test_in_balance_the_oldest_are_shuffled(self) -> None:
        topics = [*owned(*[1] * 20), *owned(1, since_ms=1.0)]
        assert released(21, [21, 21], topics, STAY_MS_MAX) == [f"t{n}" for n in range(RELEASED_MAX)]
        assert released(21, [21, 21], topics, STAY_MS_MAX - 1) == []


class Simulation:
    """Hubs with topics that are used all the time, so one that was given up is owned at once.

    Loads are as old as the hubs' last report: all report once a round, and then release.
    """

    def __init__(self, seed: int, hubs: int) -> None:
        self.chance = random.Random(seed)
        self.topics: dict[str, dict[str, OwnedTopic]] = {f"hub{n}": {} for n in range(hubs)}
        self.now_ms = 0.0
        self.moves: Counter[str] = Counter()
        self.loads = dict.fromkeys(self.topics, 0.0)
        self.reported = dict(self.loads)

    def join(self, hub: str) -> None:
        self.topics[hub] = {}
        self.loads[hub] = 0.0

    def die(self, hub: str) -> None:
        dead = self.topics.pop(hub)
        del self.loads[hub]
        self.reported = dict(self.loads)
        for topic in dead.values():
            self.own(topic)

    def own(self, topic: OwnedTopic) -> None:
        hub = choose_hub(self.reported, self.chance)
        self.topics[hub][topic.name] = topic._replace(since_ms=self.now_ms)
        self.loads[hub] += topic.load

    def own_by_chance(self, topic: OwnedTopic) -> None:
        """As if all loads were alike."""
        hub = self.chance.choice(list(self.topics))
        self.topics[hub][topic.name] = topic._replace(since_ms=self.now_ms)
        self.loads[hub] += topic.load

    def round(self, every_ms: float = 10_000.0) -> None:
        self.now_ms += every_ms
        self.reported = dict(self.loads)
        homeless = []
        for hub, topics in self.topics.items():
            others = [load for other, load in self.reported.items() if other != hub]
            for name in topics_to_release(
                self.reported[hub], others, topics.values(), len(topics), self.now_ms
            ):
                homeless.append(topics.pop(name))
                self.loads[hub] -= homeless[-1].load
                self.moves[name] += 1
        for topic in homeless:
            self.own(topic)

    def spread(self) -> float:
        """The largest load, as a multiple of the mean."""
        loads = self.loads.values()
        return max(loads) * len(loads) / sum(loads)

    def least(self) -> float:
        """The smallest load, as a share of the mean."""
        loads = self.loads.values()
        return min(loads) * len(loads) / sum(loads)


def converge(simulated: Simulation, topics: int, rounds: int, chosen: int) -> None:
    """Topics come in, some much used; hubs choose the last ones' owners; a hub joins; one
    dies.
    """
    batch = chosen // 10
    for n in range(topics):
        # One in a hundred has a thousand times the load of one at rest, at most.
        busy = n % 100 == 0
        load = load_of(simulated.chance.random() * 100 if busy else 0)
        topic = OwnedTopic(f"topic{n}", load, simulated.now_ms)
        if n < topics - chosen:
            simulated.own_by_chance(topic)
        else:
            simulated.own(topic)
            if n % batch == batch - 1:
                simulated.round()
    for _ in range(rounds):
        simulated.round()
    assert simulated.spread() < 1 + 2 * TOLERANCE
    assert simulated.least() > 1 - 2 * TOLERANCE
    simulated.moves.clear()
    simulated.join("new")
    for _ in range(rounds):
        simulated.round()
    assert simulated.least() > 1 - 2 * TOLERANCE, "the new hub gets its share"
    assert simulated.spread() < 1 + 2 * TOLERANCE
    # Each topic that the new hub lacked moved; few others did, and none of them often.
    share = topics / len(simulated.topics)
    assert simulated.moves.total() < 6 * share
    assert max(simulated.moves.values()) <= 4
    simulated.die("hub0")
    for _ in range(rounds):
        simulated.round()
    assert simulated.spread() < 1 + 2 * TOLERANCE
    assert sum(len(owned) for owned in simulated.topics.values()) == topics
    simulated.moves.clear()
    for _ in range(10):
        simulated.round()
    assert simulated.moves.total() < topics / 1_000, "what is in balance rests"


class TestManyHubs:
    @pytest.mark.parametrize("seed", range(3))
    def test_loads_converge(self, seed: int) -> None:
        converge(Simulation(seed, hubs=20), topics=10_000, rounds=60, chosen=10_000)

    @pytest.mark.thorough
    def test_loads_of_hundreds_of_hubs_with_a_million_topics_converge(self) -> None:
        converge(Simulation(9, hubs=300), topics=1_000_000, rounds=40, chosen=50_000)
