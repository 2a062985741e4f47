"""Blobs that are changed together, where some fail: the outcome of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from hqueue import Outcome, StoreUnavailableError
from hqueue.metadata.blobs import BlobRecords
from hqueue.metadata.fields import FieldChange
from hqueue.metadata.outcomes import PartlyDoneError, partly_done
from hqueue.metadata.ports import ANY, NEW, Change, Record, Version

AWAY = StoreUnavailableError("away", outcome=Outcome.UNKNOWN, path="a")
NOT_SENT = StoreUnavailableError("not sent")


class Nodes:
    """Versioned records; some changes fail."""

    def __init__(self) -> None:
        self.there = {"live": Record(b'{"version": 1}', Version(3), 0)}
        self.fail: dict[str, Any] = {}

    def read(self, keys: Sequence[str]) -> dict[str, Record]:
        return {key: self.there[key] for key in keys if key in self.there}

    def write(self, changes: Mapping[str, Change]) -> Mapping[str, Any]:
        answers = {key: self.fail.get(key, Version(7)) for key in changes}
        if any(isinstance(answer, StoreUnavailableError) for answer in answers.values()):
            raise partly_done(AWAY, answers)
        return answers

    def remove(self, versions: Mapping[str, Version]) -> Mapping[str, Any]:
        answers = {key: self.fail.get(key, True) for key in versions}
        if any(isinstance(answer, StoreUnavailableError) for answer in answers.values()):
            raise partly_done(AWAY, answers)
        return answers


def test_of_those_that_are_written_together_each_has_its_own_outcome() -> None:
    nodes = Nodes()
    nodes.fail = {"lost": AWAY, "later": NOT_SENT, "taken": None}
    blobs = BlobRecords(nodes)  # type: ignore[arg-type]
    names = ("new", "taken", "lost", "later")
    changes = {name: FieldChange({"f": b"1"}, NEW) for name in names}
    with pytest.raises(PartlyDoneError) as caught:
        blobs.write(changes | {"none": FieldChange({"f": b"1"}, ANY)})
    answers = caught.value.answers
    assert (answers["new"], answers["none"]) == (Version(7), None)
    assert answers["lost"] is AWAY
    assert answers["later"] is NOT_SENT
    assert answers["taken"].outcome is Outcome.NOT_APPLIED, "it had to be looked at again"
    assert caught.value.outcome is Outcome.UNKNOWN


def test_of_those_that_are_deleted_together_each_has_its_own_outcome() -> None:
    nodes = Nodes()
    nodes.there["lost"] = nodes.there["live"]
    nodes.fail = {"lost": AWAY}
    blobs = BlobRecords(nodes)  # type: ignore[arg-type]
    with pytest.raises(PartlyDoneError) as caught:
        blobs.delete({"live": Version(3), "lost": Version(3), "never": NEW, "none": ANY})
    assert caught.value.answers == {"live": True, "lost": AWAY, "never": False, "none": False}


def test_what_is_not_deleted_is_not_said_to_be_where_others_are_lost() -> None:
    nodes = Nodes()
    names = ("lost", "later", "changed", "gone", "above", "led")
    nodes.there |= dict.fromkeys(names, nodes.there["live"])
    nodes.fail = {"lost": AWAY, "later": NOT_SENT, "changed": False, "gone": False, "above": None}
    blobs = BlobRecords(
        nodes,  # type: ignore[arg-type]
        leading=lambda key: ("led/below",) if key == "led" else (),
    )
    versions = dict.fromkeys(names, Version(3)) | {"live": Version(3), "gone": ANY}
    with pytest.raises(PartlyDoneError) as caught:
        blobs.delete(versions)
    answers = caught.value.answers
    assert {key: answers[key] for key in ("live", "changed", "lost", "later")} == {
        "live": True,
        "changed": False,
        "lost": AWAY,
        "later": NOT_SENT,
    }
    for name, why in {
        "gone": "it had to be looked at again",
        "above": "it had to be emptied",
        "led": "it had to be emptied",
    }.items():
        assert answers[name].outcome is Outcome.NOT_APPLIED, why
