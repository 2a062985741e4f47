"""The code that consumers of a share group run in a model, and what may happen to them."""

from __future__ import annotations

import dataclasses
import types
from typing import Any

from hqueue.sharing import acquisition as acquisition_module
from hqueue.sharing import hands as hands_module
from hqueue.sharing import shared_consumption as consumption_module
from hqueue.sharing import shared_partition as partition_module
from tests.model.mutants import executed

__all__ = ["ALL_RULES", "Bounds", "Code", "Mutant", "mutated"]


@dataclasses.dataclass(frozen=True)
class Code:
    """The library's code, and what the service looks at.

    Args:
        partition: `SharedPartition`.
        hands: `Hands`.
        consumption: `SharedConsumption`.
        compares_versions: whether a write changes only the version that it names.
    """

    partition: Any = partition_module.SharedPartition
    hands: Any = hands_module.Hands
    consumption: Any = consumption_module.SharedConsumption
    compares_versions: bool = True


ALL_RULES = Code()


@dataclasses.dataclass(frozen=True)
class Bounds:
    """What may happen at most.

    Args:
        rates: the consumers' clocks, by how much faster than time each is.
        keys: those of the messages, in their order.
        by_key: whether keys are kept in order.
        acquire_max: how many messages a poll acquires.
        deliveries_max: after how many deliveries a message is a dead letter.
        ticks: how often time passes: a bit more than a lock each time.
        failures: requests without an answer: each is carried out before, or later, or never.
        cancelled: calls that are cut off while they wait for an answer.
        crashes: consumers that end without a word.
        closes: consumers that end as they should.
        later: consumers that begin when another has ended.
        releases: messages that a program gives back.
        renewals: messages that a program needs longer for.
        rejections: messages that a program rejects.
    """

    rates: tuple[float, ...] = (1.0, 0.96)
    keys: tuple[bytes | None, ...] = (None,)
    by_key: bool = False
    acquire_max: int = 1
    deliveries_max: int | None = None
    ticks: int = 0
    failures: int = 0
    cancelled: int = 0
    crashes: int = 0
    closes: int = 0
    later: int = 0
    releases: int = 0
    renewals: int = 0
    rejections: int = 0


@dataclasses.dataclass(frozen=True)
class Mutant:
    """A rule that is taken out, by an edit of the library's source, and where that is seen."""

    bounds: str
    edits: tuple[tuple[str, str], ...] = ()
    module: types.ModuleType = partition_module
    compares_versions: bool = True


def mutated(mutant: Mutant, rule: str) -> Code:
    """The library's code without a rule."""
    modules = partition_module, hands_module, consumption_module
    partition, hands, consumption = (
        executed(module, mutant.edits, rule) if module is mutant.module else vars(module)
        for module in modules
    )
    if mutant.module is acquisition_module:
        edited = executed(acquisition_module, mutant.edits, rule)
        partition = executed(partition_module, (), rule)
        partition |= {name: edited[name] for name in ("acquire", "answered", "wanted")}
    return Code(
        partition["SharedPartition"],
        hands["Hands"],
        consumption["SharedConsumption"],
        mutant.compares_versions,
    )
