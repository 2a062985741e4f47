"""Whatever is done with topics' metadata on a real server, each answer is the model's."""

from __future__ import annotations

import uuid

import pytest
from hypothesis import HealthCheck, given, settings

from hqueue.hbase.thrift.gateway_store import GatewayStore
from tests.support.metadata_kinds import KINDS, MetadataKind
from tests.support.metadata_model import STEPS, Step, follows_the_model
from tests.support.topic_managers import row_managers, zookeeper_managers


def root() -> str:
    return f"/hqueue-{uuid.uuid4().hex[:12]}"


@pytest.mark.servers
@pytest.mark.thorough("the same over stores in memory is in `make check`")
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
@given(steps=STEPS)
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_zookeeper(request: pytest.FixtureRequest, kind: MetadataKind, steps: list[Step]) -> None:
    where = request.getfixturevalue("server").settings(zookeeper_root=root())
    with zookeeper_managers(where) as backend:
        follows_the_model(backend.open(), kind, steps)


@pytest.mark.servers
@pytest.mark.thorough("the same over stores in memory is in `make check`")
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
@given(steps=STEPS)
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_hbase(request: pytest.FixtureRequest, kind: MetadataKind, steps: list[Step]) -> None:
    where = request.getfixturevalue("server").settings()
    with row_managers(lambda: GatewayStore(where), root()) as backend:
        follows_the_model(backend.open(), kind, steps)
