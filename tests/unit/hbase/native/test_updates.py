"""Conditional updates of many rows: each has its condition, its answer and its error."""

from __future__ import annotations

import contextlib
import dataclasses
import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import pytest

from hqueue import ClosedError, Outcome, Settings, StoreUnavailableError
from hqueue.errors import HQueueError, QueueDisabledError
from hqueue.hbase.native.async_servers import AsyncServers
from hqueue.hbase.native.protocol import pb
from hqueue.hbase.native.regions import Meta, RegionMap
from hqueue.hbase.native.requests import EQUAL
from hqueue.hbase.native.servers import Servers
from hqueue.hbase.native.updates import BYTES_MAX, TOGETHER_MAX, TableUpdates
from hqueue.hbase.native.zookeeper_registry import ZooKeeperRegistry
from hqueue.hbase.record_rows import Answer, RowUpdate
from hqueue.settings.addresses import Address
from tests.support.looped import LoopThread
from tests.support.region_server import RegionServer, meta_node, region_row
from tests.support.registries import reading
from tests.support.scripted_server import Asked, ScriptedServer, answer

Block = tuple[bytes, bytes, bytes]
TABLE = "metadata"
ROWS = [b"/a/%03d" % number for number in range(TOGETHER_MAX * 3 + 5)]
NOT_SERVING = "org.apache.hadoop.hbase.NotServingRegionException"
TOO_BUSY = "org.apache.hadoop.hbase.RegionTooBusyException"
WAL_FAILED = "org.apache.hadoop.hbase.regionserver.wal.WALSyncTimeoutIOException"


class Written(NamedTuple):
    """A message as it is sent."""

    message: bytes

    def SerializeToString(self) -> bytes:  # noqa: N802
        return self.message


@dataclasses.dataclass
class Judging(RegionServer):
    """A region server with versions of rows, that makes conditional updates.

    Args:
        judges: whether it knows conditions in a Multi.
        fails: the error for each row, by its key.
        says: what is answered to each Multi, if not the truth.
    """

    judges: bool = True
    fails: dict[bytes, str] = dataclasses.field(default_factory=dict)
    says: bytes | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.versions: dict[bytes, bytes] = {}
        self.written: dict[bytes, dict[bytes, bytes]] = {}
        self.before: Callable[[Asked], None] = lambda asked: None

    def __call__(self, asked: Asked) -> list[bytes]:
        self.before(asked)
        if asked.method == "Scan":
            return super().__call__(asked)
        self.asked.append(asked)
        cells = _cells(asked.cells)
        if asked.method == "Mutate":
            said = pb.MutateRequest.FromString(asked.message)
            made = self._judge(said.mutation, said.condition, cells)
            return [answer(asked, pb.MutateResponse(processed=made))]
        response = pb.MultiResponse()
        for region_action in pb.MultiRequest.FromString(asked.message).regionAction:
            [action] = region_action.action
            result = response.regionActionResult.add()
            failure = self.fails.get(action.mutation.row)
            if failure is not None:
                for _ in range(action.mutation.associated_cell_count):
                    next(cells)
                result.exception.name = failure
                result.exception.value = failure.encode()
                continue
            made = self._judge(action.mutation, region_action.condition, cells)
            result.resultOrException.add(index=action.index)
            if self.judges:
                result.processed = made
        return [answer(asked, response if self.says is None else Written(self.says))]

    def _judge(self, mutation: Any, condition: Any, cells: Iterator[Block]) -> bool:
        values = [next(cells) for _ in range(mutation.associated_cell_count)]
        assert {row for row, _, _ in values} <= {mutation.row} == {condition.row}
        assert (condition.family, condition.qualifier) == (b"r", b"v")
        assert condition.compare_type == EQUAL
        assert condition.comparator.name == "org.apache.hadoop.hbase.filter.BinaryComparator"
        wanted = pb.BinaryComparator.FromString(condition.comparator.serialized_comparator)
        if self.versions.get(mutation.row, b"") != wanted.comparable.value:
            return False
        if mutation.mutate_type == pb.MutationProto.DELETE:
            self.versions.pop(mutation.row, None)
        else:
            self.written[mutation.row] = {column: value for _, column, value in values}
            self.versions[mutation.row] = self.written[mutation.row][b"r:v"]
        return True


def _cells(block: bytes) -> Iterator[Block]:
    """Row, column and value of each cell."""
    at = 0
    while at < len(block):
        total, key, size, row = struct.unpack_from(">IIIH", block, at)
        first = at + 14
        family = block[first + row]
        name = block[first + row + 1 : at + 12 + key - 9]
        value = block[at + 12 + key : at + 12 + key + size]
        yield block[first : first + row], name[:family] + b":" + name[family:], value
        at += 4 + total


Update = Callable[[Sequence[RowUpdate]], list[Answer | HQueueError]]


class Table(NamedTuple):
    """What updates rows, by one of the faces."""

    update: Update
    servers: Servers | AsyncServers


Begin = Callable[..., tuple[Table, list[Judging]]]


@pytest.fixture(params=["threads", "asyncio"])
def begin(request: pytest.FixtureRequest) -> Iterator[Begin]:
    """A table on some region servers, its rows spread evenly."""
    with contextlib.ExitStack() as stack:

        def table(settings: Settings, meta: Meta) -> Table:
            regions = RegionMap(meta, TABLE, 15_000)
            if request.param == "threads":
                servers = stack.enter_context(contextlib.closing(Servers(settings)))
                updates = TableUpdates(servers, TABLE, regions)
                return Table(lambda rows: servers.carry_out(updates.updating(rows)), servers)
            thread = stack.enter_context(contextlib.closing(LoopThread()))
            in_loop = AsyncServers(settings)
            stack.callback(thread.call, in_loop.close)
            work = TableUpdates(in_loop, TABLE, regions).updating
            return Table(lambda rows: thread.run(in_loop.carry_out(work(rows))), in_loop)

        def run(count: int = 1, **settings: Any) -> tuple[Table, list[Judging]]:
            served = [Judging(TABLE) for _ in range(count)]
            addresses: list[Address] = [
                stack.enter_context(contextlib.closing(ScriptedServer(each))).address
                for each in served
            ]
            starts = [b"", *(ROWS[len(ROWS) * n // count] for n in range(1, count)), b""]
            for each in served:
                each.regions = [
                    region_row(TABLE, start, end, address)
                    for start, end, address in zip(starts, starts[1:], addresses, strict=False)
                ]
            node = meta_node(addresses[0])
            meta = Meta(
                ZooKeeperRegistry(reading(lambda path: node if "meta" in path else None), "/hbase")
            )
            return table(Settings(**settings), meta), served

        yield run


def put(row: bytes, old: bytes | None = None, new: bytes = b"1" * 16) -> RowUpdate:
    return RowUpdate(row, old, {b"r:v": new, b"h:3": new, b"r:.state": b"value of " + row})


def multis(served: Judging) -> list[Any]:
    """The Multis that a server got, but for what it was asked first."""
    found = [
        pb.MultiRequest.FromString(each.message) for each in served.asked if each.method == "Multi"
    ]
    return found[1:]


@pytest.mark.parametrize("count", [1, 3])
def test_each_row_is_updated_on_its_own_condition(begin: Begin, count: int) -> None:
    table, served = begin(count)
    assert table.update([put(row) for row in ROWS]) == [Answer.MADE] * len(ROWS)
    versions: dict[bytes, bytes] = {}
    for each in served:
        assert sum(len(multi.regionAction) for multi in multis(each)) == len(each.versions) > 1
        assert len(multis(each)) == -(-len(each.versions) // TOGETHER_MAX)
        versions |= each.versions
        for row, cells in each.written.items():
            assert cells == put(row).cells
    assert versions == dict.fromkeys(ROWS, b"1" * 16)
    new = b"2" * 17
    updates = [
        put(row, b"1" * 16 if number % 3 else (None, b"0" * 16)[number % 2], new)
        for number, row in enumerate(ROWS)
    ]
    answers = table.update(updates)
    assert answers == [Answer.MADE if number % 3 else Answer.REFUSED for number in range(len(ROWS))]
    deletions = [RowUpdate(row, new, None) for row in ROWS]
    assert table.update(deletions) == answers
    left = {row for each in served for row in each.versions}
    assert left == set(ROWS[::3])


def test_a_single_update_is_a_request_of_its_own_kind(begin: Begin) -> None:
    table, [served] = begin()
    assert table.update([put(ROWS[0])]) == [Answer.MADE]
    assert table.update([put(ROWS[0])]) == [Answer.REFUSED]
    assert table.update([]) == []
    assert [each.method for each in served.asked if each.method != "Scan"] == ["Mutate"] * 2


def test_a_server_that_does_not_judge_gets_a_request_a_row_and_writes_nothing_unjudged(
    begin: Begin,
) -> None:
    table, [old, new] = begin(2)
    old.judges = False
    old.versions = {ROWS[0]: b"0" * 16}
    answers = table.update([put(row) for row in ROWS])
    assert answers == [Answer.REFUSED, *[Answer.MADE] * (len(ROWS) - 1)]
    asked = [each.method for each in old.asked if each.method != "Scan"]
    assert asked == ["Multi"] + ["Mutate"] * len(old.versions)
    assert old.versions[ROWS[0]] == b"0" * 16
    assert multis(new)


def test_a_server_that_stops_saying_that_it_judged_is_believed_no_more(begin: Begin) -> None:
    table, [served] = begin()
    assert table.update([put(row) for row in ROWS[:3]]) == [Answer.MADE] * 3
    served.judges = False
    answers = table.update([put(row, b"1" * 16) for row in ROWS[:3]])
    assert {outcome_of(each) for each in answers} == {Outcome.UNKNOWN}
    assert table.update([put(row) for row in ROWS[3:6]]) == [Answer.MADE] * 3
    assert served.asked[-1].method == "Mutate"


def outcome_of(said: Answer | HQueueError) -> Outcome:
    assert isinstance(said, StoreUnavailableError)
    return said.outcome


def test_one_that_fails_says_nothing_of_the_others(begin: Begin) -> None:
    table, [served] = begin()
    served.fails = {ROWS[1]: TOO_BUSY, ROWS[5]: WAL_FAILED, ROWS[70]: TOO_BUSY}
    answers = dict(zip(ROWS, table.update([put(row) for row in ROWS]), strict=True))
    failed = {row: outcome_of(answers.pop(row)) for row in served.fails}
    assert failed == {
        ROWS[1]: Outcome.NOT_APPLIED,
        ROWS[5]: Outcome.UNKNOWN,
        ROWS[70]: Outcome.NOT_APPLIED,
    }
    assert set(answers.values()) == {Answer.MADE}
    assert served.versions.keys() == answers.keys()


def test_rows_of_a_region_that_has_gone_are_not_applied_and_the_map_is_read_again(
    begin: Begin,
) -> None:
    table, [served] = begin()
    assert table.update([put(row) for row in ROWS[:2]]) == [Answer.MADE] * 2

    def maps_read() -> int:
        return sum(each.method == "Scan" for each in served.asked)

    read = maps_read()
    served.fails = dict.fromkeys(ROWS[:40], NOT_SERVING)
    answers = table.update([put(row) for row in ROWS[2:60]])
    assert {outcome_of(each) for each in answers[:38]} == {Outcome.NOT_APPLIED}
    assert len({id(each) for each in answers[:38]}) == 38, "each has an error of its own"
    assert answers[38:] == [Answer.MADE] * 20
    assert maps_read() == read + 1, "once, to explain it to all"
    served.state = pb.TableState.DISABLED
    answers = table.update([put(row) for row in ROWS[2:40]])
    assert {type(each) for each in answers} == {QueueDisabledError}


def test_a_request_that_gets_lost_is_unknown_for_its_rows_alone(begin: Begin) -> None:
    table, [served] = begin()
    table.update([put(row) for row in ROWS[:2]])

    def lose(asked: Asked) -> None:
        if asked.method == "Multi" and ROWS[2] in asked.message:
            raise ConnectionResetError

    served.before = lose
    answers = table.update([put(row) for row in ROWS[2:]])
    unknown = [each for each in answers if not isinstance(each, Answer)]
    assert len(unknown) >= TOGETHER_MAX
    assert {outcome_of(each) for each in unknown[:TOGETHER_MAX]} == {Outcome.UNKNOWN}
    assert len({id(each) for each in unknown}) == len(unknown)
    served.before = lambda asked: None
    assert table.update([put(row) for row in ROWS[2:]]).count(Answer.MADE) >= TOGETHER_MAX


@pytest.mark.parametrize("senseless", [b"\xff\xff", b"", b"\x0a\x00" * 3])
def test_an_answer_that_makes_no_sense_is_unknown(begin: Begin, senseless: bytes) -> None:
    table, [served] = begin()
    table.update([put(row) for row in ROWS[:2]])
    served.says = senseless
    answers = table.update([put(row) for row in ROWS[2:10]])
    assert {outcome_of(each) for each in answers} == {Outcome.UNKNOWN}


def test_requests_are_bounded_in_bytes_too(begin: Begin) -> None:
    table, [served] = begin()
    sizes = [BYTES_MAX // 3] * 7 + [2 * BYTES_MAX] + [10] * 5
    updates = [
        RowUpdate(row, None, {b"r:v": b"1" * 16, b"r:.f": bytes(size)})
        for row, size in zip(ROWS, sizes, strict=False)
    ]
    assert set(table.update(updates)) == {Answer.MADE}
    assert [len(each.regionAction) for each in multis(served)] == [2, 2, 2, 1, 1, 5]
    assert [len(cells[b"r:.f"]) for cells in served.written.values()] == sizes


def test_a_closed_store_does_nothing(begin: Begin) -> None:
    table, [served] = begin()
    table.servers.close()
    assert closed(table.update([put(row) for row in ROWS])) == {Outcome.NOT_APPLIED}
    assert not served.versions


@pytest.mark.parametrize("count", [1, 5])
def test_closing_leaves_what_was_sent_unknown(begin: Begin, count: int) -> None:
    table, [served] = begin()
    table.update([put(row) for row in ROWS[:2]])

    def close(asked: Asked) -> None:
        table.servers.close()

    served.before = close
    answers = table.update([put(row) for row in ROWS[2 : 2 + count]])
    assert closed(answers) == {Outcome.UNKNOWN}


def test_closing_while_the_map_is_read_leaves_every_update_not_applied(begin: Begin) -> None:
    table, [served] = begin()

    def close(asked: Asked) -> None:
        table.servers.close()

    served.before = close
    assert closed(table.update([put(ROWS[0])])) == {Outcome.NOT_APPLIED}
    assert not served.versions


def closed(answers: list[Answer | HQueueError]) -> set[Outcome]:
    """The outcomes of updates that all ended because the store was closed."""
    errors = [each for each in answers if isinstance(each, ClosedError)]
    assert len(errors) == len(answers)
    assert len({id(each) for each in errors}) == len(errors), "each has an error of its own"
    return {each.outcome for each in errors}
