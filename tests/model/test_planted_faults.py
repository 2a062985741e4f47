"""A log that is broken is an error for a reader, whatever it was asked: never a silence."""

from __future__ import annotations

import inspect
from collections.abc import Callable

import pytest

from hqueue.errors import CorruptLogError
from hqueue.format import rowkey
from hqueue.format.header import encode_header
from hqueue.log import PartitionCursor, PartitionReader
from hqueue.log import cursor as cursor_module
from hqueue.log import standing as standing_module
from hqueue.runtime.clock import Deadline

from .mutants import Mutant, mutated
from .participants import BOUND_MS, WorldClock, WorldPort, bodies_of, nonce_of, prefilled
from .scenario import Scenario
from .world import World

Plant = Callable[[World], None]


def log_with(plant: Plant) -> World:
    """Six batches, with a fault planted among them."""
    world = World(Scenario("planted", {}, before=prefilled(6)))
    plant(world)
    world.settle()
    return world


def third_row_is_gone(world: World) -> None:
    del world.store.rows[world.store.slots()[2]]


def third_header_is_gone(world: World) -> None:
    world.store.delete_header(world.store.slots()[2], world.now_ms)


def third_ordinal_is_wrong(world: World) -> None:
    slot = world.store.slots()[2]
    nonce = nonce_of("w", 2)
    world.store.rows[slot].header = encode_header(
        rowkey.encode(0, slot),
        bodies_of(nonce, 1),
        base=slot,
        ordinal=7,
        nonce=nonce,
        published_ms=world.now_ms,
    )


def third_header_is_damaged(world: World) -> None:
    cells = world.store.rows[world.store.slots()[2]]
    assert cells.header is not None
    cells.header = cells.header[:-1] + bytes([cells.header[-1] ^ 1])


def third_bodies_are_damaged(world: World) -> None:
    world.store.rows[world.store.slots()[2]].bodies[b"t"] += b"!"


def third_row_has_another_topic(world: World) -> None:
    world.store.rows[world.store.slots()[2]].bodies[b"u"] = b"?"


def third_header_is_of_another_row(world: World) -> None:
    slots = world.store.slots()
    world.store.rows[slots[2]].header = world.store.rows[slots[1]].header


FAULTS = (
    third_row_is_gone,
    third_header_is_gone,
    third_ordinal_is_wrong,
    third_header_is_damaged,
    third_bodies_are_damaged,
    third_row_has_another_topic,
    third_header_is_of_another_row,
)


def cursor_in(
    world: World, steps: type[PartitionCursor] = PartitionCursor, **options: int
) -> PartitionReader:
    clock = WorldClock(world, "r")
    reader = PartitionReader(0, WorldPort(world), clock=clock)
    reader.steps = steps(0, clock=clock, **options)
    return reader


def drain(world: World, cursor: PartitionReader, ordinals: list[int]) -> list[int]:
    """As a scanner does: read until the reader says that it is at the tail."""
    while not cursor.at_tail:
        for batch in cursor.read(Deadline(WorldClock(world, "r"), BOUND_MS)):
            ordinals.append(batch.header.ordinal)
    return ordinals


@pytest.mark.parametrize("bytes_max", [1, 4 * 1024 * 1024, 64 * 1024 * 1024])
@pytest.mark.parametrize("plant", FAULTS, ids=lambda plant: plant.__name__)
def test_a_scan_gives_what_comes_before_the_fault_and_then_its_error(
    plant: Plant, bytes_max: int
) -> None:
    world = log_with(plant)
    cursor = cursor_in(world, bytes_max=bytes_max)
    given: list[int] = []
    with pytest.raises(CorruptLogError):
        drain(world, cursor, given)
    assert given == [0, 1]
    with pytest.raises(CorruptLogError):  # It stays.
        cursor.read(Deadline(WorldClock(world, "r"), BOUND_MS))


@pytest.mark.parametrize(
    ("plant", "edit"),
    [
        (
            third_ordinal_is_wrong,
            (
                "if self._ordinal is not None and header.ordinal != self._ordinal:",
                "if False:",
            ),
        ),
        (
            third_row_is_gone,
            (
                "if not (yield from self._jump(row, exc.header, deadline)):\n"
                "                    return None",
                "self._slot, self._ordinal = row.slot, exc.header.ordinal",
            ),
        ),
        (
            third_bodies_are_damaged,
            (
                "readable(row, header, counted, strange=len(row.cells) != len(there))",
                "tuple((entry, row.cells[entry.topic]) for entry in counted)",
            ),
        ),
        (
            third_row_has_another_topic,
            (
                "strange=len(row.cells) != len(there)",
                "strange=False",
            ),
        ),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_without_its_check_a_fault_is_not_seen(plant: Plant, edit: tuple[str, str]) -> None:
    world = log_with(plant)
    is_cursors = edit[0] in inspect.getsource(cursor_module)
    module = cursor_module if is_cursors else standing_module
    _, steps = mutated(Mutant(plant.__name__, "", (edit,), module))
    cursor = cursor_in(world, steps)
    assert len(drain(world, cursor, [])) >= 3


@pytest.mark.parametrize("plant", [third_row_is_gone, third_ordinal_is_wrong])
def test_a_follower_that_is_given_the_rows_sees_the_fault(plant: Plant) -> None:
    world = log_with(plant)
    cursor = cursor_in(world)
    deadline = Deadline(WorldClock(world, "r"), BOUND_MS)
    slots = world.store.slots()
    rows = [world.store.row(slot, None, world.now_ms) for slot in slots]
    for row in rows[:2]:
        cursor.accept(row, deadline)
    for _ in range(2):  # Where a row is gone, the one after it is met.
        with pytest.raises(CorruptLogError):
            cursor.accept(rows[2], deadline)


@pytest.mark.parametrize("start", range(0, 6))
def test_reading_from_any_id_gives_the_rest(start: int) -> None:
    world = log_with(lambda _: None)
    first = (world.now_ms << 15) + start
    cursor = cursor_in(world, start=first)
    assert drain(world, cursor, []) == list(range(start, 6))
    assert cursor.expired == 0


def test_reading_begins_inside_a_batch_and_ends_inside_another() -> None:
    world = log_with(lambda _: None)
    base = world.now_ms << 15
    cursor = cursor_in(world, start=base + 2, stop=base + 4)
    found = []
    while not cursor.at_tail:
        found += cursor.read(Deadline(WorldClock(world, "r"), BOUND_MS))
    assert [(b.start - base, b.stop - base) for b in found] == [(2, 3), (3, 4)]
    assert cursor.finished
