"""Which face of a client of hubs a test uses: see `both_faces`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.hub_faces import face_of


@pytest.fixture(autouse=True)
def hub_face(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    name = getattr(request, "param", "threads")
    with face_of(name, monkeypatch):
        yield name
