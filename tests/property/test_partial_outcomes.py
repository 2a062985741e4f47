"""Of several records that are changed together some get lost: what is said of each is true."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from hqueue import Outcome
from hqueue.errors import StoreUnavailableError
from hqueue.metadata.blobs import BlobRecords
from hqueue.metadata.fields import FieldChange, FieldRecord
from hqueue.metadata.outcomes import PartlyDoneError
from hqueue.metadata.ports import ANY, NEW, Change, Version
from tests.support.memory.metadata import MemoryServer
from tests.support.metadata_histories import FaultyRecords

ABOVE, LED = "/r/above", "/r/led"
"""Others lie below the one, and are to lie below the other."""

KEYS = [ABOVE, LED, "/r/a", "/r/b"]
SHARE = 0.4
"""How many requests get lost, or their answers."""

CALLS = st.lists(
    st.tuples(
        st.sampled_from(["write", "delete"]),
        st.dictionaries(st.sampled_from(KEYS), st.sampled_from(["new", "any", "this", "that"])),
    ),
    max_size=12,
)


def leading(key: str) -> list[str]:
    return [f"{LED}/below"] if key == LED else []


@given(CALLS, st.integers(0, 2**32))
def test_what_is_said_of_each_is_true(calls: list[tuple[str, dict[str, str]]], seed: int) -> None:
    records = MemoryServer().open().records
    records.write({f"{ABOVE}/below": Change(b"x", NEW)})
    truth = BlobRecords(records, leading=leading)
    faulty = BlobRecords(FaultyRecords(records, seed, SHARE), leading=leading)
    truth.write({key: FieldChange({"f": b"0"}, NEW) for key in KEYS})
    for number, (kind, asked) in enumerate(calls, 1):
        before = truth.read(KEYS)
        versions = {key: version_of(before, key, which) for key, which in asked.items()}
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


def version_of(found: Mapping[str, Any], key: str, which: str) -> Version:
    """What is asked for: `this` is the record's, `that` another."""
    if which in ("new", "any"):
        return NEW if which == "new" else ANY
    there = found[key].version if key in found else 0
    return Version(there + (which == "that"))


def matches(was: object, version: Version, kind: str) -> bool:
    """Whether a change is done, if it comes through."""
    if version == NEW:
        return was is None and kind == "write"
    return was is not None and version in (ANY, was.version)  # type: ignore[attr-defined]
