"""Updates of many rows, each on a condition of its own, in few requests.

A Multi takes many rows; each has a RegionAction of its own, for the condition stands there. Servers
that are older than HBase 2.4 don't know it: they would pass it over, and write. So a server is
asked once, by a deletion of nothing on a condition that can't hold, whether it says that it judged.
Those that don't get a request a row.

RegionAction, by hand, for a thousand rows take some milliseconds:

    0A  RegionSpecifier             of the region
    1A  Action                      08 00, and 12 MutationProto: 0A row, 10 type, 40 number of cells
    22  Condition                   0A row, 12 family, 1A qualifier, 20 02 (equal), and
        2A  Comparator              0A its class, and 12 BinaryComparator:
            0A  ByteArrayComparable 0A the value; without it where there must be none

Each of these begins with its length, as protobuf has it.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from hqueue.errors import HQueueError, Outcome, StoreUnavailableError
from hqueue.hbase.native.cells import put_cells
from hqueue.hbase.native.exchanges import Ask, AskAll, Asking, Request
from hqueue.hbase.native.faces import Via
from hqueue.hbase.native.protocol import pb
from hqueue.hbase.native.regions import Region, RegionMap, TableRegions
from hqueue.hbase.native.requests import TableRequests, deletion, has_value, mutate, put_of
from hqueue.hbase.native.translation import NotServedError, reads_answer
from hqueue.hbase.native.wire import Answer as Reply
from hqueue.hbase.native.wire import field
from hqueue.hbase.record_cells import VERSION, Cells
from hqueue.hbase.record_rows import Answer, RowUpdate
from hqueue.metadata.outcomes import own_copy
from hqueue.settings.addresses import Address

__all__ = ["UNDER_WAY_MAX", "TableUpdates", "multis"]

TOGETHER_MAX = 32
"""Rows of a request. A server makes them one after the other, and awaits its log for each: so what
hubs ask for together, 256 at most, is as many requests as it does at once."""

BYTES_MAX = 1024 * 1024
"""What a request should weigh; a larger update goes alone."""

UNDER_WAY_MAX = 8
"""Requests of a call that a server does at once: it shares what it awaits of its log among them,
and has 30 that work on requests, by default."""

ROWS_UNDER_WAY_MAX = 64
"""The same, where each request is of one row."""

_FAMILY, _QUALIFIER = VERSION.split(b":", 1)
_VERSION = _FAMILY, _QUALIFIER
_DELETE = b"\x10%c" % pb.MutationProto.DELETE

_MULTI = b"Multi"


class _UpdateBatch(NamedTuple):
    """Updates that go in one request."""

    numbers: Sequence[int]
    """Of the updates, in their order."""
    request: Request


class TableUpdates(TableRequests[Via]):
    """What makes conditional updates of one table's rows. Thread-safe.

    Args:
        servers: to region servers; see `Asker`.
        table: the table's name.
        regions: where its regions are.
    """

    def __init__(self, servers: Via, table: str, regions: RegionMap) -> None:
        super().__init__(servers, table, regions)
        self._judges: dict[Address, bool] = {}
        """Whether a server judges the conditions in a Multi."""

    def updating(self, updates: Sequence[RowUpdate]) -> Asking[list[Answer | HQueueError]]:
        """What `RowPort.update` does, as work."""
        try:
            if len(updates) == 1:
                return [(yield from self._update_one(updates[0]))]
            known = yield from self._regions.regions()
            of_servers: dict[Address, list[tuple[int, Region]]] = {}
            for number, update in enumerate(updates):
                region = known.of(update.key)
                of_servers.setdefault(region.address, []).append((number, region))
            are_judges = []
            for placed in of_servers.values():
                are_judges.append((yield from self._is_judge(placed[0][1])))
        except HQueueError as exc:
            return [own_copy(exc) for _ in updates]
        of_each = [
            (multis if is_judge else _mutates)(updates, placed)
            for is_judge, placed in zip(are_judges, of_servers.values(), strict=True)
        ]
        a_server = UNDER_WAY_MAX if all(are_judges) else ROWS_UNDER_WAY_MAX
        found = yield from self._send(of_each, len(of_each) * a_server)
        outcomes = [found[number] for number in range(len(updates))]
        return (yield from self._explained(known, outcomes))

    def _update_one(self, update: RowUpdate) -> Asking[Answer]:
        key, version, cells = update
        condition = has_value(key, _VERSION, version)
        if cells is None:
            return _answer((yield from self._delete(key, deletion(key), condition)))
        return _answer((yield from self._put(key, _values(cells), condition)))

    def _is_judge(self, region: Region) -> Asking[bool]:
        """Whether the server of a region judges the conditions in a Multi; asked once."""
        is_judge = self._judges.get(region.address)
        if is_judge is None:
            try:
                is_judge = yield from self._probe(region)
                self._judges[region.address] = is_judge
            except HQueueError as exc:
                exc.outcome = Outcome.NOT_APPLIED  # Of the updates: none was sent.
                raise
        return is_judge

    @reads_answer
    def _probe(self, region: Region) -> Asking[bool]:
        # Beyond the first row that there can be: no record has that key.
        nothing = RowUpdate(region.start + b"\0", b"-", None)

        def ask(_: TableRegions) -> Asking[bool]:
            request = Request(region.address, b"Multi", _region_action(region, nothing, 0))
            said: Reply = yield Ask(request, self._table)
            [result] = pb.MultiResponse.FromString(said.message).regionActionResult
            if result.HasField("exception"):
                raise self._error(result.exception, region)
            return bool(result.HasField("processed"))

        return (yield from self._located(ask))

    def _send(
        self, of_each: Sequence[Iterator[_UpdateBatch]], together_max: int
    ) -> Asking[dict[int, Answer | HQueueError]]:
        """Make the requests, those to different servers in turns; what came of each update. Each
        is put together while those before it are under way.
        """
        sent: list[_UpdateBatch] = []

        def requests() -> Iterator[Request]:
            for turn in itertools.zip_longest(*of_each):
                for batch in turn:
                    if batch is not None:
                        sent.append(batch)
                        yield batch.request

        answers = yield AskAll(requests(), self._table, together_max)
        found: dict[int, Answer | HQueueError] = {}
        for batch, said in zip(sent, answers, strict=True):
            try:
                if isinstance(said, HQueueError):
                    raise said
                found.update(zip(batch.numbers, self._read(batch, said), strict=True))
            except HQueueError as exc:
                found.update((number, own_copy(exc)) for number in batch.numbers)
        return found

    @reads_answer
    def _read(self, batch: _UpdateBatch, said: Reply) -> list[Answer | HQueueError]:
        if batch.request.method != _MULTI:
            alone = pb.MutateResponse.FromString(said.message)
            if not alone.HasField("processed"):
                raise ValueError("the answer does not say whether the request was carried out")
            return [_answer(alone.processed)]
        results = pb.MultiResponse.FromString(said.message).regionActionResult
        if len(results) != len(batch.numbers):
            raise ValueError("the answer's rows are not those of the request")
        return [self._outcome(result, batch.request) for result in results]

    def _outcome(self, result: Any, request: Request) -> Answer | HQueueError:
        if result.HasField("processed"):
            return _answer(result.processed)
        if result.HasField("exception"):
            return self._error(result.exception, request)
        self._judges.pop(request.address, None)  # Another server must have come there.
        return StoreUnavailableError(
            "the server's answer is malformed",
            outcome=Outcome.UNKNOWN,
            reason="it does not say whether it was done",
        )

    def _explained(
        self, known: TableRegions, outcomes: list[Answer | HQueueError]
    ) -> Asking[list[Answer | HQueueError]]:
        """Let what comes of requests say whether the region map is good, and the map say why a
        region is not served.
        """
        if any(isinstance(each, StoreUnavailableError) for each in outcomes):
            self._regions.doubt(known)
        unserved = [each for each in outcomes if isinstance(each, NotServedError)]
        if not unserved:
            return outcomes
        why = yield from self._regions.explain(unserved[0])
        return [own_copy(why) if isinstance(each, NotServedError) else each for each in outcomes]


def multis(
    updates: Sequence[RowUpdate], placed: Sequence[tuple[int, Region]]
) -> Iterator[_UpdateBatch]:
    """Requests to one server, of many updates each."""
    numbers: list[int] = []
    actions: list[bytes] = []
    pieces: list[bytes] = []
    cell_bytes = 0

    def batch() -> _UpdateBatch:
        # Many small pieces would cost more to send than to copy.
        block = pieces if len(numbers) == 1 else [b"".join(pieces)]
        address = placed[0][1].address
        return _UpdateBatch(numbers, Request(address, _MULTI, b"".join(actions), block, cell_bytes))

    for number, region in placed:
        cells, size, count = _block(updates[number])
        if numbers and (len(numbers) == TOGETHER_MAX or cell_bytes + size > BYTES_MAX):
            yield batch()
            numbers, actions, pieces, cell_bytes = [], [], [], 0
        numbers.append(number)
        actions.append(_region_action(region, updates[number], count))
        pieces += cells
        cell_bytes += size
    yield batch()


def _mutates(
    updates: Sequence[RowUpdate], placed: Sequence[tuple[int, Region]]
) -> Iterator[_UpdateBatch]:
    """Requests to one server, each of one update."""
    for number, region in placed:
        key, version, cells = updates[number]
        pieces, size, count = _block(updates[number])
        condition = has_value(key, _VERSION, version)
        mutation = _mutation(key, cells, count)
        yield _UpdateBatch([number], mutate(region, mutation, condition, pieces, size))


def _region_action(region: Region, update: RowUpdate, count: int) -> bytes:
    """An update as a field of MultiRequest, with this many cells in the block."""
    key, version, cells = update
    return field(
        b"\x0a",
        field(b"\x0a", region.written)
        + field(b"\x1a", b"\x08\0" + field(b"\x12", _mutation(key, cells, count)))
        + field(b"\x22", has_value(key, _VERSION, version)),
    )


def _mutation(key: bytes, cells: Cells | None, count: int) -> bytes:
    return field(b"\x0a", key) + _DELETE if cells is None else put_of(key, count)


def _block(update: RowUpdate) -> tuple[list[bytes], int, int]:
    """An update's cells, as `put_cells` returns them."""
    return put_cells(update.key, _values(update.cells or {}))


def _values(cells: Cells) -> list[tuple[bytes, bytes, bytes]]:
    return [(*_split(column), value) for column, value in cells.items()]


@functools.lru_cache(256)  # There are few.
def _split(column: bytes) -> tuple[bytes, bytes]:
    family, _, qualifier = column.partition(b":")
    return family, qualifier


def _answer(processed: bool) -> Answer:
    return Answer.MADE if processed else Answer.REFUSED
