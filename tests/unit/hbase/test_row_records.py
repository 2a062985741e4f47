"""Records of rows over a model of HBase's rows: delete markers that hide what is put after them,
servers whose clocks are behind, requests and answers that get lost, others at every moment.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Sequence

import pytest

from hqueue import StoreUnavailableError
from hqueue.errors import HQueueError, Outcome
from hqueue.hbase.record_cells import HISTORY, VERSION, Cells, Mark
from hqueue.hbase.record_rows import Answer, RowUpdate
from hqueue.hbase.row_records import RowRecords
from hqueue.metadata.fields import FieldChange, FieldRecord
from hqueue.metadata.ports import ANY, NEW, Version

KEY = "/r/a"
ROW = KEY.encode()


class ManualClock:
    """A clock that runs only when something waits."""

    def __init__(self) -> None:
        self.now_ms = 1_000.0

    def wall_ms(self) -> int:
        return int(self.now_ms)

    def monotonic_ms(self) -> float:
        return self.now_ms

    def sleep_ms(self, duration_ms: float) -> None:
        self.now_ms += duration_ms


@dataclasses.dataclass
class ModelRow:
    """A row as HBase keeps it: nothing is removed, but hidden."""

    cells: dict[bytes, tuple[int, bytes]] = dataclasses.field(default_factory=dict)
    """By column, with the timestamp: the last of the highest."""
    deleted_ms: int = -1
    """Cells of this time and before are hidden, also those that come later."""

    def visible(self) -> dict[bytes, bytes]:
        return {c: value for c, (ms, value) in self.cells.items() if ms > self.deleted_ms}


class ModelRows:
    """The `RowPort` on one row, by HBase's rules of timestamps."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.row = ModelRow()
        self.behind_ms = 0
        """How far the clock of the server that has the row now is behind."""
        self.seen: list[Mark] = []
        """Each version that the row came to have."""
        self.before: Callable[[], None] = lambda: None
        """Called before each request."""
        self.lose: Callable[[], str] = lambda: ""
        """What becomes of a request: "request" or "answer" gets lost, or the gateway has to
        "repeat" it, since the region server's answer got lost.
        """

    def prepare(self) -> None:
        pass

    def read(self, keys: Sequence[bytes], *, history: bool = False) -> list[tuple[bytes, Cells]]:
        def read() -> list[tuple[bytes, Cells]]:
            cells = self.row.visible()
            if not history:
                cells = {c: v for c, v in cells.items() if not c.startswith(HISTORY)}
            return [(ROW, cells)] if cells else []

        return self._bring(read)

    def scan(self, first: bytes, beyond: bytes, limit: int) -> list[tuple[bytes, Cells]]:
        return self.read([ROW])

    def update(self, updates: Sequence[RowUpdate]) -> list[Answer | HQueueError]:
        return [self._update(each) for each in updates]

    def _update(self, update: RowUpdate) -> Answer | HQueueError:
        def change() -> Answer:
            there = self.row.visible().get(VERSION)
            if there != update.version:
                return Answer.REFUSED
            if update.cells is None:
                self.row.deleted_ms = max(self.row.deleted_ms, self._now_ms())
            else:
                self._put(there, update.cells)
            return Answer.MADE

        try:
            return self._bring(change)  # type: ignore[no-any-return]
        except HQueueError as exc:
            return exc

    def _put(self, there: bytes | None, cells: Cells) -> None:
        at_ms = max(self._now_ms(), self.row.cells[VERSION][0] if there else 0)
        for column, value in cells.items():
            if at_ms >= self.row.cells.get(column, (0, b""))[0]:
                self.row.cells[column] = at_ms, value
        now = self.row.visible().get(VERSION)
        if now is not None and now != there:
            mark = Mark.decode(now)
            assert mark is not None
            self.seen.append(mark)

    def close(self) -> None:
        pass

    def exists(self) -> bool:
        return True

    def delete(self, keys: Sequence[bytes]) -> None:
        raise AssertionError("a record is deleted by compare-and-set")

    def _now_ms(self) -> int:
        return int(self.clock.now_ms) - self.behind_ms

    def _bring(self, request: Callable[[], object]):  # type: ignore[no-untyped-def]
        self.before()
        lost = self.lose()
        if lost == "request":
            raise StoreUnavailableError("lost", outcome=Outcome.UNKNOWN)
        answer = request()
        if lost == "repeat":
            self.before()
            answer = request()
            if answer is Answer.REFUSED:
                answer = Answer.REFUSED_LATE
        if lost == "answer":
            raise StoreUnavailableError("lost", outcome=Outcome.UNKNOWN)
        return answer


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def rows(clock: ManualClock) -> ModelRows:
    return ModelRows(clock)


@pytest.fixture
def records(rows: ModelRows, clock: ManualClock) -> RowRecords:
    return RowRecords(rows, clock, 5_000)


def create(records: RowRecords) -> Version:
    version = records.write({KEY: FieldChange({"f": b"1"}, NEW)})[KEY]
    assert version is not None
    return version


def test_what_is_created_in_the_millisecond_of_a_deletion_is_there(
    records: RowRecords, rows: ModelRows, clock: ManualClock
) -> None:
    for _ in range(50):
        at_ms = clock.now_ms
        version = create(records)
        assert records.read([KEY]) == {KEY: FieldRecord({"f": b"1"}, version)}
        assert records.delete({KEY: version})[KEY]
        assert records.read([KEY]) == {}
        assert not rows.row.visible(), "the row itself goes, too"
    assert clock.now_ms > at_ms


def test_a_version_that_never_was_is_refused_however_long_that_takes(
    records: RowRecords, rows: ModelRows
) -> None:
    version = create(records)
    rows.lose = lambda: "repeat"
    never = Version(version - 1)
    assert records.write({KEY: FieldChange({"f": b"2"}, never)}) == {KEY: None}
    assert records.delete({KEY: never}) == {KEY: False}
    assert records.read([KEY])[KEY] == FieldRecord({"f": b"1"}, version)


@pytest.mark.parametrize("behind_ms", [10, 2_000])
def test_a_server_whose_clock_is_behind_hides_nothing_that_was_acknowledged(
    records: RowRecords, rows: ModelRows, clock: ManualClock, behind_ms: int
) -> None:
    clock.now_ms += 10_000
    first = create(records)
    assert records.delete({KEY: first})[KEY]
    rows.behind_ms = behind_ms
    began_ms = clock.now_ms
    version = create(records)
    assert clock.now_ms - began_ms >= behind_ms
    assert records.read([KEY]) == {KEY: FieldRecord({"f": b"1"}, version)}
    rows.behind_ms += 1_000
    assert records.delete({KEY: version})[KEY]
    assert records.read([KEY]) == {}
    again = create(records)
    assert records.read([KEY]) == {KEY: FieldRecord({"f": b"1"}, again)}


def test_a_creation_that_stays_hidden_is_not_applied(
    records: RowRecords, rows: ModelRows, clock: ManualClock
) -> None:
    clock.now_ms += 100_000
    assert records.delete({KEY: create(records)})[KEY]
    rows.behind_ms = 50_000
    with pytest.raises(StoreUnavailableError) as caught:
        create(records)
    assert caught.value.outcome is Outcome.NOT_APPLIED
    assert records.read([KEY]) == {}


def test_versions_grow_also_where_a_record_was_deleted(
    records: RowRecords, clock: ManualClock
) -> None:
    versions: list[Version] = []
    for _ in range(5):
        versions.append(create(records))
        changed = records.write({KEY: FieldChange({"f": b"2"}, ANY)})[KEY]
        assert changed is not None
        versions.append(changed)
        assert records.delete({KEY: ANY})[KEY]
        clock.sleep_ms(1)
    assert versions == sorted(set(versions))


def test_a_version_from_long_ago_is_refused_and_no_riddle(records: RowRecords) -> None:
    first = create(records)
    for number in range(20):
        assert records.write({KEY: FieldChange({"f": b"%d" % number}, ANY)})[KEY] is not None
    assert records.write({KEY: FieldChange({"f": b"1"}, first)})[KEY] is None
    assert not records.delete({KEY: first})[KEY]


@pytest.mark.parametrize("others", [0, 1, 5, 9])
def test_what_a_gateway_refuses_because_it_did_it_before_was_done(
    records: RowRecords, rows: ModelRows, clock: ManualClock, others: int
) -> None:
    known = create(records)
    other = RowRecords(rows, clock, 5_000)

    def change() -> None:
        rows.before = lambda: None
        for _ in range(others):
            assert other.write({KEY: FieldChange({"f": b"3"}, ANY)})[KEY] is not None

    def repeat_once() -> str:
        rows.lose = lambda: ""
        rows.before = change
        return "repeat"

    rows.lose = repeat_once
    if others > 8:
        with pytest.raises(StoreUnavailableError) as caught:
            records.write({KEY: FieldChange({"f": b"2"}, known)})
        assert caught.value.outcome is Outcome.UNKNOWN
        return
    version = records.write({KEY: FieldChange({"f": b"2"}, known)})[KEY]
    assert version in [mark.version for mark in rows.seen]
    found = records.read([KEY])[KEY]
    assert isinstance(found, FieldRecord)
    assert found.fields == {"f": b"3" if others else b"2"}


class Explored:
    """Callers that do things at once, at random; and what each of them came to know."""

    def __init__(self, seed: int, *, lossy: bool) -> None:
        self.random = random.Random(seed)
        self._lossy = lossy
        self.clock = ManualClock()
        self.clock.now_ms += 10_000
        self.rows = ModelRows(self.clock)
        self.rows.before = self._meanwhile
        if lossy:
            fates, weights = ["", "request", "answer", "repeat"], [8, 1, 1, 1]
            self.rows.lose = lambda: self.random.choices(fates, weights)[0]
        self.records = RowRecords(self.rows, self.clock, 2_000)
        self.versions: list[Version] = []
        """Of writes that were made."""
        self.deleted = 0
        self.in_doubt = 0
        self._depth = 0

    def act(self) -> None:
        """Do one thing as a caller."""
        version = self.random.choice([NEW, NEW, ANY, ANY, *self.versions[-2:]])
        try:
            if self.random.random() < 0.4:
                self.deleted += self.records.delete({KEY: version})[KEY]
            else:
                fields = {self.random.choice("ab"): b"%d" % len(self.versions)}
                whole = version == NEW or self.random.random() < 0.5
                made = self.records.write({KEY: FieldChange(fields, version, whole)})[KEY]
                self.versions += [] if made is None else [made]
        except StoreUnavailableError as exc:
            self.in_doubt += exc.outcome is Outcome.UNKNOWN

    def _meanwhile(self) -> None:
        """What happens before a request of another comes in."""
        self.clock.now_ms += self.random.choice([0, 0, 0, 0, 1, 2])
        if self._lossy and self.random.random() < 0.05:
            self.rows.behind_ms = self.random.choice([0, 1, 30])
        if self._depth < 3 and self.random.random() < 0.2:
            self._depth += 1
            self.act()
            self._depth -= 1


@pytest.mark.parametrize("lossy", [False, True])
def test_whatever_comes_between_each_change_is_made_once_and_known_to_its_caller(
    lossy: bool,
) -> None:
    decided = 0
    for seed in range(300):
        explored = Explored(seed, lossy=lossy)
        for _ in range(20):
            explored.act()
        written = {mark.version for mark in explored.rows.seen if not mark.gone}
        told = explored.versions
        assert len(set(told)) == len(told), seed
        assert set(told) <= written, seed
        decided += len(told) + explored.deleted
        if not explored.in_doubt:
            assert written == set(told), seed
        assert len(written) - len(told) <= explored.in_doubt, seed
        if not lossy:
            assert explored.in_doubt == 0, seed
    assert decided > 1_000
