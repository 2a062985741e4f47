"""The demo, the examples and the doctor on a server with Kerberos, TLS and certificates on both
sides: they run as they are, and find all that they need in the connection file.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import tomli_w

import hqueue
from hqueue import local
from hqueue.local.certificates import make_authority, make_certificate
from tests.acceptance import test_examples
from tests.acceptance.commands import DEADLINE_S, Ended, Run, Start, run_installed
from tests.acceptance.test_examples import examples  # noqa: F401  (a fixture)
from tests.support.command_line import run_here
from tests.support.tickets import Negotiation
from tests.support.waiting import wait_for

pytestmark = pytest.mark.servers

# HBase and ZooKeeper, a worker with a subscriber, a hub with its client: the other examples go
# through these doors, too.
test_put_and_scan = test_examples.test_put_and_scan_reads_back_what_it_put
test_consumers = (
    test_examples.test_two_consumers_of_a_group_share_the_partitions_and_go_on_where_it_was
)
test_a_subscriber = (
    test_examples.test_a_subscriber_gets_what_it_retries_again_and_what_it_rejects_no_more
)
test_topics = (
    test_examples.test_topics_are_published_to_once_and_subscribed_to_with_nothing_but_a_hub
)


@pytest.fixture(scope="session")
def server(secure_server: local.LocalServer) -> local.LocalServer:
    """The server of the examples that name it."""
    return secure_server


@pytest.fixture(scope="module")
def client(secure_server: local.LocalServer) -> Iterator[hqueue.Client]:
    with hqueue.connect(secure_server.settings()) as connected:
        yield connected


@pytest.fixture(scope="module")
def environment(
    secure_server: local.LocalServer, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, str]:
    """Where the programs find the server: by nothing but its home."""
    folder = tmp_path_factory.mktemp("secured")
    (folder / "no-settings.toml").touch()
    return {
        **{k: v for k, v in os.environ.items() if not k.startswith(("HQUEUE_", "KRB5"))},
        "HQUEUE_LOCAL_HOME": str(secure_server.home),
        "HQUEUE_CONFIG": str(folder / "no-settings.toml"),
        "XDG_STATE_HOME": str(folder),
        "SPARK_LOCAL_DIRS": str(folder),
        "SPARK_SUBMIT_OPTS": f"-Djava.io.tmpdir={folder}",
        "TZ": "UTC",
        "COLUMNS": "120",
    }


@pytest.fixture
def elsewhere(secure_server: local.LocalServer, tmp_path: Path) -> dict[str, str]:
    """The environment of a machine on which no server is known, but who this user is."""
    settings = secure_server.settings()
    names = ("tls", "tls_ca", "tls_certificate", "delivery_principals")
    path = tmp_path / "hqueue.toml"
    path.write_text(tomli_w.dumps({name: getattr(settings, name) for name in names}))
    return {"HQUEUE_LOCAL_HOME": "/no/server/is/known", "HQUEUE_CONFIG": str(path)}


@pytest.fixture
def run(environment: dict[str, str]) -> Run:
    return run_installed(environment)


@pytest.fixture
def run_process(run: Run) -> Run:
    return run


@pytest.fixture(scope="module")
def folder(secure_server: local.LocalServer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the authority's files, and a certificate of another one."""
    made = tmp_path_factory.mktemp("others")
    for name in ("ca.pem", "ca.key"):
        shutil.copy(secure_server.home / "conf" / "security" / name, made)
    make_authority(made, "other")
    here = f"IP:127.0.0.1,DNS:{socket.gethostname()}"
    make_certificate(made, "stranger", hosts=here, authority="other")
    make_certificate(made, "expired", hosts=here, days=-1)
    return made


def examined(environment: dict[str, str], *arguments: str, **changed: str) -> dict[str, str]:
    """What the doctor finds wrong, by checks."""
    code, out, _ = run_here(["doctor", "--json", *arguments], b"", {**environment, **changed})
    lines = [json.loads(line) for line in out.splitlines()]
    wrong = [line for line in lines if line["state"] == "wrong"]
    assert code == bool(wrong)
    assert all(line["advice"] for line in lines if line["state"] != "ok")
    return {
        check: " ".join(line["found"] for line in wrong if line["check"] == check)
        for check in {line["check"] for line in wrong}
    }


@pytest.mark.usefixtures("opened")
def test_the_doctor_finds_nothing_wrong_and_sees_everything(
    environment: dict[str, str], name: str
) -> None:
    _, out, _ = run_here(["doctor", "--json", "--queue", name], b"", environment)
    lines = [json.loads(line) for line in out.splitlines()]
    assert [line for line in lines if line["state"] == "wrong"] == []
    assert {line["check"] for line in lines if line["state"] == "ok"} >= {
        "settings", "files", "certificate", "kerberos", "names", "zookeeper", "clock", "hbase",
        "queue",
    }  # fmt: skip
    assert "the certificate of HBase's server" in out.decode()


@pytest.mark.parametrize(
    ("changed", "check", "text"),
    [
        ({"KERBEROS_PRINCIPAL": "nobody"}, "kerberos", "none of nobody"),
        ({"KERBEROS_KEYTAB": "/no/keytab"}, "files", "can't be read"),
        ({"HBASE_PRINCIPAL": "nobody/_HOST"}, "hbase", "compare hbase_principal"),
        ({"HBASE_AUTHENTICATION": "simple"}, "hbase", "hbase_authentication='kerberos'"),
        ({"TLS_CA": "other.pem"}, "hbase", "its certificate is not accepted: unable to get"),
        ({"TLS_CERTIFICATE": "stranger.pem"}, "hbase", "check tls_certificate"),
        ({"TLS_CERTIFICATE": "expired.pem"}, "certificate", "expired on"),
        ({"ZOOKEEPER": "127.0.0.1:1"}, "zookeeper", "can't be reached"),
    ],
)
def test_the_doctor_names_what_is_broken(
    environment: dict[str, str], folder: Path, changed: dict[str, str], check: str, text: str
) -> None:
    given = {
        f"HQUEUE_{name}": str(folder / value) if value.endswith(".pem") else value
        for name, value in changed.items()
    }
    found = examined(environment, HQUEUE_OPERATION_TIMEOUT_MS="6000", **given)
    assert text in found[check]


@pytest.mark.usefixtures("opened")
def test_another_principal_may_do_nothing_at_a_hub_until_it_is_allowed(
    secure_server: local.LocalServer, name: str, start: Start, run: Run
) -> None:
    start("hub", name, "--host", "127.0.0.1", "--port", "0", "--metrics-port", "0")
    wait_for(lambda: run("hubs", name).lines, "the hub is available", timeout_s=DEADLINE_S)
    found = run("doctor", "--queue", name)
    assert found.code == 0
    assert re.search(r"hubs\tok\tthe hub \S+ answers this client", found.out.decode())
    app = str(secure_server.home / "conf" / "security" / "app.pem")

    def publish() -> Ended:
        return run("publish", "t", "hello", "--queue", name, env={"HQUEUE_TLS_CERTIFICATE": app})

    refused = publish()
    assert refused.code == 1
    assert "not allowed" in refused.err
    assert run("access", "grant", "app", "create,publish", name).code == 0
    wait_for(lambda: publish().code == 0, "the rule holds", timeout_s=DEADLINE_S)
    assert run("access", "revoke", "app", "create,publish", name).code == 0


def test_a_ticket_of_the_kdc_opens_the_console(
    secure_server: local.LocalServer,
    start: Start,
    run: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    running = start("console", "--port", "0", "--metrics-port", "0", "--principals", "ops")
    while "is ready at" not in (line := running.error_line()):
        assert line, "the console has ended"
    found = re.search(r"https://127\.0\.0\.1:(\d+)/", line)
    assert found is not None
    settings = secure_server.settings()
    assert settings.kerberos_config is not None
    monkeypatch.setenv("KRB5_CONFIG", settings.kerberos_config)
    realm = str(settings.kerberos_principal).partition("@")[2]
    context = ssl.create_default_context(cafile=settings.tls_ca)
    statuses = {}
    for name, host in (("ops", "localhost"), ("ops", "127.0.0.1"), ("app", "localhost")):
        store = {"client_keytab": f"FILE:{settings.kerberos_keytab}", "ccache": f"MEMORY:{name}"}
        negotiation = Negotiation(store, f"HTTP/{host}@{realm}", f"{name}@{realm}")
        address = f"https://{host}:{found[1]}"
        with httpx.Client(base_url=address, verify=context, timeout=60, auth=negotiation) as client:
            answer = client.get("/queues")
            statuses[name, host] = answer.status_code
            assert (f'<span class="principal">{name}</span>' in answer.text) is (name == "ops")
            assert client.get("/queues").status_code == answer.status_code
        assert negotiation.tokens == 1
        assert negotiation.context is not None
        assert negotiation.context.complete
    # A ticket for HBase, which the same keytab has keys for, is none for the console.
    negotiation = Negotiation(store, f"hbase/127.0.0.1@{realm}", f"{name}@{realm}")
    refused = httpx.get(
        f"{address}/queues", verify=context, timeout=60, headers=negotiation.header()
    )
    assert refused.status_code == 401
    assert statuses == {
        ("ops", "localhost"): 200, ("ops", "127.0.0.1"): 200, ("app", "localhost"): 403
    }  # fmt: skip
