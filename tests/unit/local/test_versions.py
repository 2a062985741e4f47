"""Jars of another version of HBase are those of pom.xml, but for that version."""

from __future__ import annotations

import re

import pytest

from hqueue.errors import LocalServerError
from hqueue.local.jars import HBASE
from hqueue.local.versions import ENVIRONMENT_NAME, KNOWN, hbase_jars


def managed(pom: bytes) -> list[str]:
    """The names of all artifacts, in the file's order."""
    return re.findall(r"<artifactId>([\w-]+)</artifactId>", pom.decode())


def test_nothing_said_is_pom_xml_itself() -> None:
    assert hbase_jars({}) is HBASE
    assert hbase_jars({ENVIRONMENT_NAME: ""}) is HBASE


@pytest.mark.parametrize("wanted", [*KNOWN, "2.6.1-hadoop3", "3.0.0"])
def test_another_version_has_its_number_and_no_gateways(wanted: str) -> None:
    version = KNOWN.get(wanted, wanted)
    found = hbase_jars({ENVIRONMENT_NAME: wanted})
    assert found.name == f"HBase {version}"
    assert found.pom.startswith(b"<?xml")
    assert f"<hbase.version>{version}</hbase.version>".encode() in found.pom
    assert managed(found.pom) == [name for name in managed(HBASE.pom) if name != "hbase-thrift"]
    assert set(HBASE.keys) - set(found.keys) == {"hbase-thrift"}


@pytest.mark.parametrize("wanted", ["x", "2", "../2.5", "2.5<!--", "2.5 ", "2.5/../.."])
def test_what_is_no_version_is_refused(wanted: str) -> None:
    with pytest.raises(LocalServerError):
        hbase_jars({ENVIRONMENT_NAME: wanted})
