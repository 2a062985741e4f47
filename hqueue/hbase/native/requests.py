"""Requests about rows of one table: to the servers that have their regions."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from hqueue.errors import HQueueError, Outcome, StoreUnavailableError
from hqueue.hbase.native.cells import Cell, CellReader, put_cells
from hqueue.hbase.native.exchanges import Ask, AskAll, Asking, Request
from hqueue.hbase.native.faces import Asker, Via
from hqueue.hbase.native.protocol import pb
from hqueue.hbase.native.regions import Region, RegionMap, TableRegions
from hqueue.hbase.native.scanning import Range, Scanning
from hqueue.hbase.native.segments import read_segments
from hqueue.hbase.native.translation import NotServedError, reads_answer, translate_answer
from hqueue.hbase.native.wire import Answer, RemoteError, field, varint
from hqueue.settings.addresses import Address

__all__ = ["EQUAL", "TableRequests", "deletion", "has_value", "mutate", "put_of"]

Result = TypeVar("Result")

ROWS_MAX = 2**31 - 1
"""More than a request can name."""

EQUAL = 2  # Of CompareType.
_COMPARATOR = field(b"\x0a", b"org.apache.hadoop.hbase.filter.BinaryComparator")
_GROUP, _REGION, _ACTION, _INDEX, _MUTATION, _GET, _ROW = (
    bytes((tag,)) for tag in (0x0A, 0x0A, 0x1A, 0x08, 0x12, 0x1A, 0x0A)
)
"""Tags of MultiRequest, RegionAction, Action and Get, which are written by hand, as MutateRequest
and Condition are (see `hqueue.hbase.native.updates`): 256 messages take a millisecond to make."""


class TableRequests(Asker[Via]):
    """What asks about one table's rows. Thread-safe.

    What asks is work, and makes one try. Where a region was out of reach, or did not answer, the
    region map is read again before the next. Errors are those of `hqueue.log.ports`.

    Args:
        servers: to region servers; see `Asker`.
        table: the table's name.
        regions: where its regions are.
    """

    def __init__(self, servers: Via, table: str, regions: RegionMap) -> None:
        super().__init__(servers)
        self._table = table
        self._regions = regions

    @reads_answer
    def _get(self, row: bytes, columns: Sequence[Any]) -> Asking[list[Cell]]:
        """A row's cells."""

        def ask(known: TableRegions) -> Asking[Answer]:
            region = known.of(row)
            get = pb.GetRequest(region=region.specifier, get=pb.Get(row=row, column=columns))
            request = Request(region.address, b"Get", get.SerializeToString())
            said: Answer = yield Ask(request, self._table)
            return said

        answer = yield from self._located(ask)
        count = pb.GetResponse.FromString(answer.message).result.associated_cell_count
        return _cells_of(row, CellReader(answer.cells), count)

    @reads_answer
    def _put(
        self,
        row: bytes,
        values: Sequence[tuple[bytes, bytes, bytes]],
        condition: bytes | None = None,
    ) -> Asking[bool]:
        """Write cells (family, qualifier, value) if a condition holds. Returns whether it held."""
        cells, size, count = put_cells(row, values)
        return (yield from self._mutate(row, put_of(row, count), condition, cells, size))

    @reads_answer
    def _delete(self, row: bytes, mutation: Any, condition: bytes | None = None) -> Asking[bool]:
        """Delete cells of a row (a `deletion`) if the condition holds. Returns whether it held."""
        return (yield from self._mutate(row, mutation.SerializeToString(), condition))

    @reads_answer
    def _get_all(
        self, rows: Sequence[bytes], columns: Sequence[Any], together_max: int = ROWS_MAX
    ) -> Asking[list[list[Cell]]]:
        """The cells of each of these rows, none where there is none; by one request a server, or
        one for this many rows.
        """
        suffix = pb.Get(row=b"", column=columns).SerializePartialToString()[2:]

        def action(number: int) -> bytes:
            get = b"".join((_ROW, varint(len(rows[number])), rows[number], suffix))
            return _GET + varint(len(get)) + get

        return (yield from self._multi(rows, action, together_max))

    @reads_answer
    def _delete_all(self, mutations: Sequence[Any]) -> Asking[None]:
        """Delete of several rows (`deletion`), each on its own."""
        written = [mutation.SerializeToString() for mutation in mutations]
        yield from self._multi(
            [mutation.row for mutation in mutations],
            lambda number: _MUTATION + varint(len(written[number])) + written[number],
        )

    @reads_answer
    def _scan(
        self, partition: int, rows: Range, columns: Sequence[Any], limit: int
    ) -> Asking[list[list[Cell]]]:
        """The first rows of a range of a partition, as they were at one moment."""
        if not rows.reversed and rows.start >= rows.stop:
            return []
        first, beyond = (each.to_bytes(2, "big") for each in (partition, partition + 1))

        def read(region: Region, part: Range, most: int) -> Asking[list[list[Cell]]]:
            return Scanning(self._table, region, part, columns).read(most)

        def ask(known: TableRegions) -> Asking[list[list[Cell]]]:
            regions = known.between(first, beyond)
            if len(regions) > 1:
                return (yield from read_segments(regions, rows, limit, read))
            return (yield from read(regions[0], rows, limit))

        return (yield from self._located(ask))

    @reads_answer
    def _scan_on(
        self, start: bytes, stop: bytes, columns: Sequence[Any], limit: int
    ) -> Asking[list[list[Cell]]]:
        """The first rows of a range that may lie in several regions, one after the other."""

        def ask(known: TableRegions) -> Asking[list[list[Cell]]]:
            found: list[list[Cell]] = []
            first = start
            while len(found) < limit and first < stop:
                region = known.of(first)
                end = min(region.end or stop, stop)
                scan = Scanning(self._table, region, Range(first, end), columns)
                found += yield from scan.read(limit - len(found))
                first = end
            return found

        return (yield from self._located(ask))

    def _mutate(
        self,
        row: bytes,
        mutation: bytes,
        condition: bytes | None,
        cells: Sequence[bytes] = (),
        size: int = 0,
    ) -> Asking[bool]:
        def ask(known: TableRegions) -> Asking[Answer]:
            request = mutate(known.of(row), mutation, condition, cells, size)
            answer: Answer = yield Ask(request, self._table)
            return answer

        answer = yield from self._located(ask)
        said = pb.MutateResponse.FromString(answer.message)
        if condition is not None and not said.HasField("processed"):
            raise ValueError("the answer does not say whether the request was carried out")
        return bool(said.processed)

    def _located(self, ask: Callable[[TableRegions], Asking[Result]]) -> Asking[Result]:
        """Ask by the region map; what comes of that says whether the map is good."""
        known = yield from self._regions.regions()
        try:
            return (yield from ask(known))
        except NotServedError as exc:
            self._regions.doubt(known)
            raise (yield from self._regions.explain(exc)) from exc
        except StoreUnavailableError:
            self._regions.doubt(known)
            raise

    def _multi(
        self, rows: Sequence[bytes], action: Callable[[int], bytes], together_max: int = ROWS_MAX
    ) -> Asking[list[list[Cell]]]:
        """Do something for each row, by one request a server, or one for this many rows; what came
        of each.
        """

        def ask(known: TableRegions) -> Asking[list[list[Cell]]]:
            groups: list[tuple[Address, dict[bytes, tuple[Region, list[int]]]]] = []
            last: dict[Address, tuple[int, dict[bytes, tuple[Region, list[int]]]]] = {}
            for number, row in enumerate(rows):
                region = known.of(row)
                count, group = last.get(region.address, (together_max, {}))
                if count == together_max:
                    count, group = 0, {}
                    groups.append((region.address, group))
                last[region.address] = count + 1, group
                group.setdefault(region.name, (region, []))[1].append(number)
            requests = [
                Request(
                    address,
                    b"Multi",
                    b"".join(_group(region, numbers, action) for region, numbers in each.values()),
                )
                for address, each in groups
            ]
            answers = yield AskAll(requests, self._table)
            found: dict[int, list[Cell]] = {}
            errors: list[HQueueError] = []
            for (_, each), answer in zip(groups, answers, strict=True):
                if isinstance(answer, HQueueError):
                    errors.append(answer)
                else:
                    self._sort_out(each, answer, rows, found, errors)
            if errors:
                # What was done of the others is done.
                unknown = [error for error in errors if error.outcome is Outcome.UNKNOWN]
                first = (unknown or errors)[0]
                if found:
                    first.outcome = Outcome.UNKNOWN
                raise first
            return [found[number] for number in range(len(rows))]

        return (yield from self._located(ask))

    def _sort_out(
        self,
        groups: Mapping[bytes, tuple[Region, list[int]]],
        answer: Answer,
        rows: Sequence[bytes],
        found: dict[int, list[Cell]],
        errors: list[HQueueError],
    ) -> None:
        """Put a Multi's results to their rows, and its errors to the others."""
        said = pb.MultiResponse.FromString(answer.message).regionActionResult
        if len(said) != len(groups):
            raise ValueError("the answer's regions are not those of the request")
        reader = CellReader(answer.cells)
        for (region, numbers), result in zip(groups.values(), said, strict=True):
            if result.HasField("exception"):
                errors.append(self._error(result.exception, region))
                continue
            indexes = {each.index for each in result.resultOrException}
            if indexes != set(numbers) or len(result.resultOrException) != len(numbers):
                raise ValueError("the answer's rows are not those of the request")
            for each in result.resultOrException:
                if each.HasField("exception"):
                    errors.append(self._error(each.exception, region))
                else:
                    count = each.result.associated_cell_count
                    found[each.index] = _cells_of(rows[each.index], reader, count)
        reader.finish()

    def _error(self, said: Any, there: Region | Request) -> HQueueError:
        """An error that a server gave for one region or row of a Multi."""
        error = RemoteError(said.name, said.value.decode(errors="replace"), False)
        return translate_answer(error, self._table, "Multi", str(there.address))


def deletion(
    row: bytes, columns: Sequence[tuple[bytes, bytes]] = (), until_ms: int | None = None
) -> Any:
    """What deletes these columns of a row (family, qualifier), in all versions, or in those that
    were written up to a moment; the row, if none is given.
    """
    kind = pb.MutationProto.DELETE_MULTIPLE_VERSIONS
    values = pb.MutationProto.ColumnValue
    return pb.MutationProto(
        row=row,
        mutate_type=pb.MutationProto.DELETE,
        column_value=[
            values(
                family=family,
                qualifier_value=[
                    values.QualifierValue(qualifier=qualifier, timestamp=until_ms, delete_type=kind)
                ],
            )
            for family, qualifier in columns
        ],
    )


def put_of(row: bytes, count: int) -> bytes:
    """A MutationProto: what puts this many cells of a row, which lie in the cell block."""
    return field(_ROW, row) + b"\x10%c\x40%b" % (pb.MutationProto.PUT, varint(count))


def has_value(row: bytes, column: tuple[bytes, bytes], value: bytes | None) -> bytes:
    """The Condition that a cell has a value; None: that it is absent."""
    comparable = field(b"\x0a", b"" if value is None else field(b"\x0a", value))
    compared = field(b"\x2a", _COMPARATOR + field(b"\x12", comparable))
    return field(b"\x0a", row) + _equal(column) + compared


@functools.lru_cache(256)  # There are few.
def _equal(column: tuple[bytes, bytes]) -> bytes:
    family, qualifier = column
    return field(b"\x12", family) + field(b"\x1a", qualifier) + b"\x20%c" % EQUAL


def mutate(
    region: Region,
    mutation: bytes,
    condition: bytes | None,
    cells: Sequence[bytes] = (),
    size: int = 0,
) -> Request:
    """A request that changes a row of a region, if the condition holds."""
    message = field(b"\x0a", region.written) + field(b"\x12", mutation)
    if condition is not None:
        message += field(b"\x1a", condition)
    return Request(region.address, b"Mutate", message, cells, size)


def _group(region: Region, numbers: Sequence[int], action: Callable[[int], bytes]) -> bytes:
    """The RegionAction of some rows of a region, as a field of MultiRequest."""
    pieces = [field(_REGION, region.written)]
    pieces += (field(_ACTION, _INDEX + varint(number) + action(number)) for number in numbers)
    return field(_GROUP, b"".join(pieces))


def _cells_of(row: bytes, reader: CellReader, count: int) -> list[Cell]:
    if count < 0:
        raise ValueError("the answer has a row with a negative number of cells")
    cells = reader.take(count)
    if any(cell.row != row for cell in cells):
        raise ValueError("the answer has cells of a row that was not requested")
    return cells
