"""Of many rows that are changed together, one that fails says nothing of the others."""

from __future__ import annotations

import pytest

from hqueue import Outcome, StoreUnavailableError
from hqueue.hbase.record_cells import KEPT, Cells
from hqueue.hbase.records import RowRecords
from hqueue.metadata.fields import FieldChange
from hqueue.metadata.outcomes import PartlyDoneError
from hqueue.metadata.ports import ANY, NEW
from tests.support.backends import MemoryBackend
from tests.support.memory.store import MemoryStore

FIELDS = {"state": b"{}"}
KEYS = [f"/hqueue/{name}" for name in "abcdefgh"]


@pytest.fixture
def store() -> MemoryStore:
    return MemoryBackend().store()


def test_one_that_others_overtook_leaves_the_others_their_answers(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = store.fields()
    versions = records.write({key: FieldChange(FIELDS, NEW) for key in KEYS})
    rows = records._rows
    check_and_put = rows.check_and_put
    overtaken = KEYS[1].encode()

    def lose(key: bytes, version: bytes | None, cells: Cells) -> bool:
        done = check_and_put(key, version, cells)
        if key == overtaken:
            monkeypatch.undo()
            for _ in range(KEPT + 1):  # So often that nothing can be known any more.
                records.write({KEYS[1]: FieldChange(FIELDS, ANY)})
            raise StoreUnavailableError("lost", outcome=Outcome.UNKNOWN)
        return done

    monkeypatch.setattr(rows, "check_and_put", lose)
    with pytest.raises(PartlyDoneError) as caught:
        records.write({key: FieldChange(FIELDS, versions[key]) for key in KEYS})
    assert caught.value.outcome is Outcome.UNKNOWN
    answers = dict(caught.value.answers)
    failed = answers.pop(KEYS[1])
    assert (failed.outcome, failed.path) == (Outcome.UNKNOWN, KEYS[1])
    assert {key: records.read([key])[key].version for key in answers} == answers


def test_what_was_not_begun_before_the_deadline_is_not_applied() -> None:
    class Away:
        def prepare(self) -> None:
            pass

        def read(self, *_: object, **__: object) -> bool:
            raise StoreUnavailableError("away", outcome=Outcome.UNKNOWN)

        check_and_put = read

    records = RowRecords(Away(), bound_ms=50)  # type: ignore[arg-type]
    versions = MemoryBackend().store().fields().write({KEYS[0]: FieldChange(FIELDS, NEW)})
    known = versions[KEYS[0]]
    many = [f"/hqueue/{number}" for number in range(200)]
    with pytest.raises(PartlyDoneError) as caught:
        records.write({key: FieldChange(FIELDS, known) for key in many})
    outcomes = [answer.outcome for answer in caught.value.answers.values()]
    assert len(outcomes) == len(many)
    assert set(outcomes) == {Outcome.UNKNOWN, Outcome.NOT_APPLIED}
    assert outcomes.count(Outcome.UNKNOWN) < len(many) / 2
    records.close()
