"""Records that end with their session: what is said of those that are changed together."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from hqueue.errors import ClosedError, HQueueError, Outcome, RequestRefusedError
from hqueue.metadata.fields import FieldChange
from hqueue.metadata.managers import PresentRecords
from hqueue.metadata.ports import NEW
from tests.support.interposed import Interposed
from tests.support.memory.metadata import MemoryServer

OLD, ANEW = FieldChange({"f": b"1"}, NEW), FieldChange({"f": b"2"}, NEW)


@pytest.mark.parametrize("error", [RequestRefusedError("no right to"), ClosedError("closed")])
def test_what_is_refused_behind_a_record_that_was_written_has_a_doubt(
    error: HQueueError,
) -> None:
    store = MemoryServer().open()
    records = PresentRecords(store)
    version = records.write({"/a": OLD})["/a"]
    assert version is not None

    def refuse(values: Mapping[str, bytes], guards: object) -> None:
        raise type(error)(error.text)

    store.ephemerals = Interposed(store.ephemerals, create=refuse)
    with pytest.raises(type(error)) as caught:
        records.write({"/b": ANEW})
    assert caught.value.outcome is Outcome.NOT_APPLIED
    with pytest.raises(type(error)) as caught:
        records.write({"/a": ANEW._replace(version=version), "/b": ANEW})
    assert caught.value.outcome is Outcome.UNKNOWN
