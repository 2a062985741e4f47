"""Of many rows that are changed together, one that fails says nothing of the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn, TypeVar

import pytest

from hqueue import ClosedError, Outcome, RequestRefusedError, StoreUnavailableError
from hqueue.errors import HQueueError
from hqueue.hbase.record_cells import KEPT, Cells
from hqueue.hbase.record_rows import Answer, RowUpdate
from hqueue.hbase.record_steps import TOGETHER_MAX
from hqueue.hbase.row_records import RowRecords
from hqueue.metadata.fields import FieldChange
from hqueue.metadata.outcomes import PartlyDoneError
from hqueue.metadata.ports import ANY, NEW, Version
from tests.support.backends import MemoryBackend
from tests.support.memory.cluster import MemoryCluster
from tests.support.memory.record_rows import MemoryRecordRows

Result = TypeVar("Result")

FIELDS = {"state": b"{}"}
OTHERS = {"state": b'{"x": 1}'}
KEYS = [f"/hqueue/{name}" for name in "abcdefgh"]


class Rows:
    """Rows in memory whose requests the test changes.

    `changed` has what is called in the place of a method, by its name.
    """

    def __init__(self) -> None:
        self.kept = MemoryRecordRows(MemoryCluster(), "metadata", self._bring)
        self.changed: dict[str, Callable[..., Any]] = {}
        self.closed = False

    def _bring(self, _: str, request: Callable[[], Result]) -> Result:
        if self.closed:
            raise ClosedError("the client is closed")
        return request()

    def __getattr__(self, name: str) -> Any:
        return self.changed.get(name) or getattr(self.kept, name)


@pytest.fixture
def rows() -> Rows:
    return Rows()


@pytest.fixture
def records(rows: Rows) -> RowRecords:
    return RowRecords(rows)  # type: ignore[arg-type]


def test_one_that_others_overtook_leaves_the_others_their_answers(
    rows: Rows, records: RowRecords
) -> None:
    versions = records.write({key: FieldChange(FIELDS, NEW) for key in KEYS})
    overtaken = KEYS[1].encode()

    def lose(updates: Sequence[RowUpdate]) -> list[Answer | HQueueError]:
        answers = rows.kept.update(updates)
        for number, each in enumerate(updates):
            if each.key == overtaken:
                rows.changed.clear()
                for _ in range(KEPT + 1):  # So often that nothing can be known any more.
                    records.write({KEYS[1]: FieldChange(FIELDS, ANY)})
                answers[number] = StoreUnavailableError("lost", outcome=Outcome.UNKNOWN)
        return answers

    rows.changed["update"] = lose
    with pytest.raises(PartlyDoneError) as caught:
        records.write({key: FieldChange(FIELDS, versions[key]) for key in KEYS})
    assert caught.value.outcome is Outcome.UNKNOWN
    answers = dict(caught.value.answers)
    failed = answers.pop(KEYS[1])
    assert (failed.outcome, failed.path) == (Outcome.UNKNOWN, KEYS[1])
    assert {key: records.read([key])[key].version for key in answers} == answers


def test_closing_says_nothing_of_what_was_made_before(rows: Rows, records: RowRecords) -> None:
    made = records.write({key: FieldChange(FIELDS, NEW) for key in KEYS[1:]})
    asked: list[int] = []

    def close(updates: Sequence[RowUpdate]) -> list[Answer | HQueueError]:
        asked.append(len(updates))
        if len(asked) == 1:
            return rows.kept.update(updates)
        raise ClosedError("the client is closed")

    rows.changed["update"] = close
    with pytest.raises(ClosedError) as caught:
        records.write({key: FieldChange(OTHERS, made.get(key) or NEW) for key in KEYS})
    assert asked == [len(KEYS), 1]
    assert caught.value.outcome is Outcome.UNKNOWN, "of all together: the others were made"


def test_what_was_buried_is_deleted_though_its_tombstone_stays(
    rows: Rows, records: RowRecords
) -> None:
    records.write({key: FieldChange(FIELDS, NEW) for key in KEYS})

    def close(updates: Sequence[RowUpdate]) -> list[Answer | HQueueError]:
        answers = rows.kept.update(updates)
        records.close()
        rows.closed = True
        return answers

    rows.changed["update"] = close
    assert records.delete(dict.fromkeys(KEYS, ANY)) == dict.fromkeys(KEYS, True)


class Away:
    """Rows that can't be had: of each request the outcome is unknown."""

    def prepare(self) -> None:
        pass

    def read(self, *_: object, **__: object) -> NoReturn:
        raise StoreUnavailableError("away", outcome=Outcome.UNKNOWN)

    def update(self, updates: Sequence[RowUpdate]) -> list[Answer | HQueueError]:
        return [StoreUnavailableError("away", outcome=Outcome.UNKNOWN) for _ in updates]


def known_version() -> Version:
    written = MemoryBackend().store().fields().write({KEYS[0]: FieldChange(FIELDS, NEW)})
    version = written[KEYS[0]]
    assert version is not None
    return version


def test_what_was_not_begun_before_the_deadline_is_not_applied() -> None:
    records = RowRecords(Away(), bound_ms=50)  # type: ignore[arg-type]
    known = known_version()
    many = [f"/hqueue/{number}" for number in range(4 * TOGETHER_MAX)]
    with pytest.raises(PartlyDoneError) as caught:
        records.write({key: FieldChange(FIELDS, known) for key in many})
    outcomes = [answer.outcome for answer in caught.value.answers.values()]
    assert len(outcomes) == len(many)
    assert set(outcomes) == {Outcome.UNKNOWN, Outcome.NOT_APPLIED}
    assert outcomes.count(Outcome.UNKNOWN) < len(many) / 2


def test_a_table_that_can_t_be_made_ready_leaves_every_change_not_applied() -> None:
    class Unready(Away):
        def prepare(self) -> None:
            raise StoreUnavailableError("away", outcome=Outcome.UNKNOWN)

    records = RowRecords(Unready(), bound_ms=20)  # type: ignore[arg-type]
    known = known_version()
    with pytest.raises(PartlyDoneError) as caught:
        records.write({key: FieldChange(FIELDS, known) for key in KEYS})
    assert {answer.outcome for answer in caught.value.answers.values()} == {Outcome.NOT_APPLIED}


class Counted:
    """Rows, and how many requests of them there were."""

    def __init__(self, rows: MemoryRecordRows) -> None:
        self._rows = rows
        self.requests: list[int] = []

    def prepare(self) -> None:
        self._rows.prepare()

    def read(self, keys: Sequence[bytes], *, history: bool = False) -> list[tuple[bytes, Cells]]:
        self.requests.append(len(keys))
        return self._rows.read(keys, history=history)

    def update(self, updates: Sequence[RowUpdate]) -> list[Answer | HQueueError]:
        self.requests.append(len(updates))
        return self._rows.update(updates)


def test_many_records_go_together_at_each_of_their_steps() -> None:
    rows = Counted(Rows().kept)
    records = RowRecords(rows)  # type: ignore[arg-type]
    many = [f"/hqueue/{number}" for number in range(TOGETHER_MAX + 100)]

    def asked(change: Callable[[], object]) -> list[int]:
        rows.requests.clear()
        change()
        return rows.requests

    creations = {key: FieldChange(FIELDS, NEW) for key in many}
    assert asked(lambda: records.write(creations)) == [TOGETHER_MAX] * 3 + [100] * 3
    versions = {key: found.version for key, found in records.read(many).items()}  # type: ignore[union-attr]
    updates = {key: FieldChange(FIELDS, versions[key]) for key in many}
    assert asked(lambda: records.write(updates)) == [TOGETHER_MAX, 100]
    assert asked(lambda: records.delete(dict.fromkeys(KEYS + many[:10], ANY))) == [18, 10, 10]


def test_one_that_no_try_would_do_lets_those_that_were_begun_end(
    rows: Rows, records: RowRecords
) -> None:
    versions = records.write({key: FieldChange(FIELDS, NEW) for key in KEYS})

    def refuse(updates: Sequence[RowUpdate]) -> list[Answer | HQueueError]:
        return [RequestRefusedError("no"), *rows.kept.update(updates[1:])]

    rows.changed["update"] = refuse
    with pytest.raises(RequestRefusedError) as caught:
        records.write({key: FieldChange(OTHERS, versions[key]) for key in KEYS})
    assert caught.value.outcome is Outcome.UNKNOWN, "of all together: some were made"
    found = records.read(KEYS)
    assert [found[key].fields for key in KEYS] == [FIELDS, *[OTHERS] * 7]  # type: ignore[union-attr]


@pytest.mark.parametrize("method", ["scan", "delete"])
def test_clearing_that_fails_half_way_is_unknown(rows: Rows, method: str) -> None:
    records = RowRecords(rows, page_rows=3)  # type: ignore[arg-type]
    records.write({key: FieldChange(FIELDS, NEW) for key in KEYS})
    asked: list[object] = []

    def fail(*args: Any) -> Any:
        asked.append(args)
        if len(asked) > 1:
            raise RequestRefusedError("no")
        return getattr(rows.kept, method)(*args)

    rows.changed[method] = fail
    with pytest.raises(RequestRefusedError) as caught:
        records.clear("/hqueue")
    assert caught.value.outcome is Outcome.UNKNOWN
    rows.changed.clear()
    assert len(records.read(KEYS)) == len(KEYS) - 3


@pytest.mark.parametrize("method", ["exists", "scan"])
def test_clearing_that_deletes_nothing_is_not_applied(
    rows: Rows, records: RowRecords, method: str
) -> None:
    records.write({key: FieldChange(FIELDS, NEW) for key in KEYS})

    def fail(*_: object) -> NoReturn:
        raise RequestRefusedError("no", outcome=Outcome.UNKNOWN)

    rows.changed[method] = fail
    with pytest.raises(RequestRefusedError) as caught:
        records.clear("/hqueue")
    assert caught.value.outcome is Outcome.NOT_APPLIED
