"""Who changed the access rules: the login of the command, which is in the audit."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hqueue import Settings
from hqueue.connecting import own_login
from hqueue.metadata.access_rules import Login
from hqueue.zookeeper import ZooKeeperCoordination
from hqueue_workers.node.access_control import AccessControl
from tests.support.certificates import Certificates
from tests.support.command_line import run_here
from tests.support.memory.zookeeper import MemoryZooKeeper
from tests.support.waiting import wait_for

KERBEROS: dict[str, Any] = {
    "hbase_authentication": "kerberos", "kerberos_principal": "ops@EXAMPLE.COM"
}  # fmt: skip
DIGEST: dict[str, Any] = {
    "zookeeper_authentication": "digest", "zookeeper_auth": "sasl:ops:secret"
}  # fmt: skip


@pytest.fixture
def certificate(certificates: Certificates) -> dict[str, Any]:
    return certificates.of("certified")


def test_the_login_at_zookeeper_counts_and_otherwise_the_certificate_or_that_at_hbase(
    certificate: dict[str, Any], tmp_path: Path
) -> None:
    kerberos = Login("ops@EXAMPLE.COM", "Kerberos principal")
    user = Login("ops", "ZooKeeper user")
    file = tmp_path / "auth"
    file.write_text("sasl:ops:secret\n")
    by_file = {"zookeeper_authentication": "digest", "zookeeper_auth_file": str(file)}
    expected: list[tuple[dict[str, Any], Login | None]] = [
        ({}, None),
        (KERBEROS, kerberos),
        ({**KERBEROS, **certificate}, Login("certified", "certificate")),
        ({**KERBEROS, **certificate, **DIGEST}, user),
        (by_file, user),
        ({"zookeeper_auth": "digest:ops:secret"}, user),
        ({**KERBEROS, **certificate, "zookeeper_authentication": "kerberos"}, kerberos),
    ]
    assert [own_login(Settings(**given)) for given, _ in expected] == [
        login for _, login in expected
    ]


def test_a_certificate_without_a_principal_is_named_by_its_subject(
    certificates: Certificates,
) -> None:
    given = certificates.of("unruly", subject="/O=Example/CN=a b")
    assert own_login(Settings(**given)) == Login("CN=a b,O=Example", "certificate")


def test_what_can_not_be_used_names_nobody(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    given: dict[str, Any] = {
        "zookeeper_authentication": "digest", "zookeeper_auth_file": str(tmp_path / "absent")
    }  # fmt: skip
    assert own_login(Settings(**given)) is None
    assert "can't determine this process's principal" in caplog.text


@pytest.fixture
def audit() -> Iterator[list[str]]:
    """The lines of the audit. A command has handlers of its own, so this one is the logger's."""
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("hqueue.audit")
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield lines
    logger.setLevel(level)
    logger.removeHandler(handler)


@pytest.mark.parametrize("given", [DIGEST, {}])
def test_the_audit_has_the_login_of_the_command_and_what_it_is(
    tmp_path: Path, audit: list[str], given: dict[str, Any]
) -> None:
    with MemoryZooKeeper(users={"ops": "secret"}) as server:
        settings = Settings(zookeeper=f"127.0.0.1:{server.port}", **given)
        coordination = ZooKeeperCoordination(settings)
        control = AccessControl(coordination.access_rules, [])
        environ = {
            "HQUEUE_LOCAL_HOME": str(tmp_path),
            **{
                f"HQUEUE_{name.upper()}": str(value)
                for name, value in {**given, "zookeeper": settings.zookeeper}.items()
            },
        }
        control.begin()
        code, _, err = run_here(["access", "grant", "app", "read", "events"], b"", environ)
        assert code == 0, err
        wait_for(lambda: audit, "the change is in the audit")
        control.close()
        coordination.close()
    who = (
        'who="ops" action="access" login="ZooKeeper user, as its program says"'
        if given
        else 'who="anonymous" action="access"'
    )
    assert audit == [f'{who} added="app read events * -" allowed="yes"']
