"""Of several records that are changed together some get lost: what is said of each is true."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hqueue import Outcome
from hqueue.errors import StoreUnavailableError
from hqueue.hbase.row_records import RowRecords
from hqueue.metadata.blobs import BlobRecords
from hqueue.metadata.fields import FieldChange, FieldRecord, FieldRecords
from hqueue.metadata.outcomes import PartlyDoneError
from hqueue.metadata.ports import ANY, NEW, Change, Version
from tests.support.doubles import SteppedClock
from tests.support.memory.cluster import MemoryCluster
from tests.support.memory.metadata import MemoryServer
from tests.support.memory.record_rows import MemoryRecordRows
from tests.support.metadata_histories import FaultyRecords, Losing

Answer = TypeVar("Answer")

ABOVE, LED = "/r/above", "/r/led"
"""Others lie below the one, and must lie below the other."""

KEYS = [ABOVE, LED, "/r/a", "/r/b"]
SHARE = 0.4
"""How many requests get lost, or their answers."""

BOUND_MS = 20
"""On a call with its tries: so short that not all succeed."""

CALLS = st.lists(
    st.tuples(
        st.sampled_from(["write", "delete"]),
        st.dictionaries(st.sampled_from(KEYS), st.sampled_from(["new", "any", "this", "that"])),
    ),
    max_size=12,
)


def leading(key: str) -> list[str]:
    return [f"{LED}/below"] if key == LED else []


def blobs(seed: int) -> tuple[FieldRecords, FieldRecords]:
    """Records, and the same by a way that loses each change by itself."""
    records = MemoryServer().open().records
    records.write({f"{ABOVE}/below": Change(b"x", NEW)})
    faulty = FaultyRecords(records, seed, SHARE)
    return BlobRecords(records, leading=leading), BlobRecords(faulty, leading=leading)


def rows(seed: int) -> tuple[FieldRecords, FieldRecords]:
    """Likewise. A record's change takes several requests, and each is tried a few times."""
    clock = SteppedClock(1e12)
    cluster = MemoryCluster(clock)
    losing = Losing(seed, SHARE)

    def bring(operation: str, request: Callable[[], Answer]) -> Answer:
        return request()

    def lose(operation: str, request: Callable[[], Answer]) -> Answer:
        clock.now_ms += 1
        return losing.call(request)

    there, faulty = (MemoryRecordRows(cluster, "records", way) for way in (bring, lose))
    return RowRecords(there, clock), RowRecords(faulty, clock, BOUND_MS)


@pytest.mark.parametrize("make", [blobs, rows])
@given(CALLS, st.integers(0, 2**32))
def test_what_is_said_of_each_is_true(
    make: Callable[[int], tuple[FieldRecords, FieldRecords]],
    calls: list[tuple[str, dict[str, str]]],
    seed: int,
) -> None:
    truth, faulty = make(seed)
    known: dict[str, Any] = {**truth.write({key: FieldChange({"f": b"0"}, NEW) for key in KEYS})}
    for number, (kind, asked) in enumerate(calls, 1):
        before: Mapping[str, Any] = truth.read(KEYS)
        known |= {key: found.version for key, found in before.items()}
        versions = {key: version_of(known[key], which) for key, which in asked.items()}
        value = {"f": str(number).encode()}
        try:
            answers: Mapping[str, Any] = (
                faulty.write({key: FieldChange(value, each) for key, each in versions.items()})
                if kind == "write"
                else faulty.delete(versions)
            )
        except PartlyDoneError as exc:
            answers = exc.answers
        except StoreUnavailableError as exc:
            answers = dict.fromkeys(versions, exc)
        after = truth.read(KEYS)
        assert answers.keys() == versions.keys()
        for key, answer in answers.items():
            was, now = before.get(key), after.get(key)
            if isinstance(answer, StoreUnavailableError):
                assert answer.outcome is Outcome.UNKNOWN or now == was
            elif answer is None or answer is False:
                assert now == was
                assert not matches(was, versions[key], kind)
            elif kind == "write":
                assert matches(was, versions[key], kind)
                assert now == FieldRecord(value, answer)
            else:
                assert matches(was, versions[key], kind)
                assert now is None


def version_of(known: Version, which: str) -> Version:
    """What is asked for: `this` is the record's, or was when there was one; `that` another."""
    if which in ("new", "any"):
        return NEW if which == "new" else ANY
    return Version(known + (which == "that"))


def matches(was: object, version: Version, kind: str) -> bool:
    """Whether a change is done, if it comes through."""
    if version == NEW:
        return was is None and kind == "write"
    return was is not None and version in (ANY, was.version)  # type: ignore[attr-defined]
