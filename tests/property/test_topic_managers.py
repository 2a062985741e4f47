"""Whatever is done with topics' metadata, each answer is the model's. Over real servers it is in
`tests/conformance/test_topic_sequences.py`.
"""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from tests.support.backends import MemoryBackend
from tests.support.metadata_kinds import KINDS, MetadataKind
from tests.support.metadata_model import STEPS, Step, follows_the_model
from tests.support.topic_managers import MemoryManagers, blobs_in_memory, row_managers

EACH_KIND = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)


@EACH_KIND
@given(steps=STEPS)
@settings(max_examples=30)
def test_fields_in_memory(kind: MetadataKind, steps: list[Step]) -> None:
    managers = MemoryManagers().open()
    follows_the_model(managers, kind, steps)
    managers.close()


@EACH_KIND
@given(steps=STEPS)
@settings(max_examples=30)
def test_blobs_in_memory(kind: MetadataKind, steps: list[Step]) -> None:
    with blobs_in_memory() as backend:
        follows_the_model(backend.open(), kind, steps)


@EACH_KIND
@given(steps=STEPS)
@settings(max_examples=30)
def test_rows_in_memory(kind: MetadataKind, steps: list[Step]) -> None:
    with row_managers(MemoryBackend().store, "/hqueue") as backend:
        follows_the_model(backend.open(), kind, steps)
