"""No secret in anything that is shown or kept: reprs, errors, logs, commands, processes, tasks."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import faulthandler
import itertools
import logging
import os
import pickle
import re
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

import hqueue
from hqueue import Message, SettingsError, Subscription
from hqueue.cli.app import app
from hqueue.settings.secret_fields import secret_fields
from hqueue.settings.zookeeper_security import Credential
from hqueue.topics.settings import HubClientSettings
from hqueue_workers.hub.settings import HubSettings
from hqueue_workers.node.settings import WorkerSettings
from pyspark_hqueue.reading.read_options import ReadOptions
from pyspark_hqueue.writing.write_options import WriteOptions
from tests.integration.pushing import Received, WorkerThread, put_numbers
from tests.support.backends import MemoryBackend
from tests.support.certificates import Certificates
from tests.support.command_line import run_here
from tests.support.hubs import HubThread
from tests.support.memory.zookeeper import MemoryZooKeeper
from tests.support.waiting import wait_for

MARK = "mark-7f3a91-of-a-secret"
"""In each secret."""

CLASSES: tuple[Any, ...] = (hqueue.Settings, HubClientSettings, WorkerSettings, HubSettings)
SECRETS = {"zookeeper_auth": f"digest:app:{MARK}"}
"""A value of each setting that is a secret."""

SOUNDS_SECRET = re.compile(r"(?:^|_)(?:auth|credentials?|password|secret|token)s?$")


def shows(text: str) -> bool:
    """Whether a text has a secret in it, or a part of one that says much of it."""
    return MARK in text or MARK[:12] in text


def test_every_setting_that_is_a_secret_is_marked_and_has_a_value_here() -> None:
    marked = {name for kind in CLASSES for name in secret_fields(kind)}
    assert marked == SECRETS.keys()
    names = {field.name for kind in CLASSES for field in dataclasses.fields(kind)}
    assert {name for name in names if SOUNDS_SECRET.search(name)} <= marked


def test_no_text_of_settings_shows_them() -> None:
    settings = hqueue.Settings(**SECRETS)  # type: ignore[arg-type]
    texts = [repr(settings), str(settings), f"{settings}", repr([settings]), repr(vars(settings))]
    texts += [repr(copy.copy(settings)), repr(Credential.parse(SECRETS["zookeeper_auth"]))]
    assert not any(map(shows, texts))


def _in_file(folder: Path, text: str) -> dict[str, str]:
    file = folder / "hqueue.toml"
    file.write_text(text)
    return {"HQUEUE_CONFIG": str(file)}


@pytest.mark.parametrize("name", SECRETS)
@pytest.mark.parametrize("value", [MARK, f":{MARK}", MARK.encode(), [MARK], {"a": MARK}])
def test_no_error_of_a_wrong_secret_shows_it(tmp_path: Path, name: str, value: Any) -> None:
    ways: list[Callable[[], object]] = [
        lambda: hqueue.Settings(**{name: value}),
        lambda: hqueue.Settings.load({name: value}, {}),
        lambda: hqueue.connect(**{name: value}),
    ]
    if isinstance(value, str):
        written = {
            "": f'{name} = "{value}"\n',
            "unknown": f'{name}s = "{value}"\n',
            "cut": f'{name} = "{value}\n',
            "bare": f"{name} = {value}\n",
            "twice": f'{name} = "a"\n{name} = "{value}"\n',
        }
        ways += [
            lambda text=text: hqueue.Settings.load({}, _in_file(tmp_path, text))  # type: ignore[misc]
            for text in written.values()
        ]
        ways += [
            lambda variable=variable: hqueue.Settings.load({}, {variable: value})  # type: ignore[misc]
            for variable in (f"HQUEUE_{name.upper()}", f"HQUEUE_{name.upper()}S")
        ]
    for way in ways:
        with pytest.raises(hqueue.HQueueError) as caught:
            way()
        error = caught.value
        lines = "".join(traceback.format_exception(error))
        assert not shows(f"{error} {error!r} {error.facts} {lines}")


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> None:
    """All secrets in the environment."""
    for name, value in SECRETS.items():
        monkeypatch.setenv(f"HQUEUE_{name.upper()}", value)


def _commands() -> Iterator[list[str]]:
    """All commands of ``hqueue``."""

    def below(command: Any, path: list[str]) -> Iterator[list[str]]:
        yield path
        context = typer.Context(command)
        for name in getattr(command, "list_commands", lambda _: ())(context):
            yield from below(command.get_command(context, name), [*path, name])

    root: Any = typer.main.get_command(app)
    return below(root, [])


def test_no_command_shows_a_secret_or_takes_one_as_an_option(tmp_path: Path) -> None:
    environ = {f"HQUEUE_{name.upper()}": value for name, value in SECRETS.items()}
    environ["HQUEUE_LOCAL_HOME"] = str(tmp_path)
    options = {f"--{name.replace('_', '-')}" for name in SECRETS}
    commands = list(_commands())
    assert len(commands) > 20
    for command in commands:
        code, out, err = run_here([*command, "--help"], b"", environ)
        assert code == 0, err
        assert not shows(out.decode() + err), command
        assert not options & set(out.decode().split()), command
    nowhere = ["--verbose", "--hbase-masters", "127.0.0.1:1", "--operation-timeout-ms", "100"]
    for arguments in (["list", "--json"], ["describe", "q"], ["metadata", "hubs"], ["lists"]):
        code, out, err = run_here([*nowhere, *arguments], b"", environ)
        assert code, out
        assert not shows(out.decode() + err), arguments


@pytest.mark.parametrize("known", [{"app": MARK}, {}], ids=["right", "wrong"])
@pytest.mark.parametrize("arguments", [[], ["--json"]])
def test_what_the_doctor_says_can_be_shown_to_others(
    tmp_path: Path, certificates: Certificates, known: dict[str, str], arguments: list[str]
) -> None:
    found = certificates.of("doctor")
    keytab = tmp_path / "keytab"
    keytab.write_bytes(b"\5\2" + MARK.encode())
    with MemoryZooKeeper(users=known) as server:
        environ = {
            "HQUEUE_LOCAL_HOME": str(tmp_path),
            "HQUEUE_ZOOKEEPER": f"127.0.0.1:{server.port}",
            "HQUEUE_ZOOKEEPER_AUTHENTICATION": "digest",
            "HQUEUE_ZOOKEEPER_AUTH": f"sasl:app:{MARK}",
            "HQUEUE_HBASE_AUTHENTICATION": "kerberos",
            "HQUEUE_KERBEROS_KEYTAB": str(keytab),
            "HQUEUE_OPERATION_TIMEOUT_MS": "500",
            "HQUEUE_DELIVERY_PRINCIPALS": "hub",
            "HQUEUE_TLS": "true",
            "HQUEUE_TLS_CA": found["tls_ca"],
            "HQUEUE_TLS_CERTIFICATE": found["tls_certificate"],
        }
        _, out, err = run_here(["--verbose", "doctor", *arguments], b"", environ)
    assert "zookeeper" in out.decode().lower()
    assert not shows(out.decode() + err)
    assert not [key for key in _private(found["tls_certificate"]) if key in out.decode() + err]


def _private(certificate: str) -> list[str]:
    """The lines of a private key, which lies in the certificate's file."""
    lines = Path(certificate).read_text().splitlines()
    return lines[1 : lines.index("-----END PRIVATE KEY-----")]


@pytest.mark.usefixtures("given")
def test_no_task_of_spark_carries_a_secret_and_an_executor_has_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for made in (
        ReadOptions.of({"queue": "q", "hqueue.zookeeper": "z:1"}, "batch"),
        WriteOptions.of({"queue": "q", "hqueue.zookeeper": "z:1"}, "stream"),
    ):
        assert not shows(repr(made))
        pickled = pickle.dumps(made)
        assert not shows(pickled.decode("latin-1"))
        assert pickle.loads(pickled) == made
        with monkeypatch.context() as elsewhere:
            for name, value in SECRETS.items():
                elsewhere.setenv(f"HQUEUE_{name.upper()}", f"{value}-of-an-executor")
            elsewhere.setenv("HQUEUE_ZOOKEEPER", "another:1")
            there = pickle.loads(pickled).settings
            assert there.zookeeper == "z:1"
            assert there.zookeeper_auth[0].credential == f"app:{MARK}-of-an-executor"
            for name in SECRETS:
                elsewhere.delenv(f"HQUEUE_{name.upper()}")
            with pytest.raises(SettingsError, match="set this one there, too"):
                _ = pickle.loads(pickled).task_settings
    monkeypatch.delenv("HQUEUE_ZOOKEEPER_AUTH")
    pickle.loads(pickle.dumps(ReadOptions.of({"queue": "q"}, "batch")))


@pytest.mark.parametrize("name", SECRETS)
def test_a_secret_is_no_option_of_spark_which_shows_those_in_plans(name: str) -> None:
    with pytest.raises(hqueue.InvalidInputError, match="can't be an option") as caught:
        ReadOptions.of({"queue": "q", f"hqueue.{name}": SECRETS[name]}, "batch")
    assert not shows(str(caught.value))


@pytest.fixture
def everything(caplog: pytest.LogCaptureFixture) -> Iterator[Callable[[], str]]:
    """All that is logged, down to what is finer than DEBUG."""
    with caplog.at_level(1):
        for name in list(logging.Logger.manager.loggerDict):
            caplog.set_level(1, name)
        yield lambda: "".join(
            f"{record.getMessage()} {record.args!r} {record.exc_text or ''}\n"
            for record in caplog.records
        )


def test_no_log_or_error_of_a_session_with_zookeeper_shows_a_secret(
    everything: Callable[[], str], capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    bounds = {"operation_timeout_ms": 500, "connect_timeout_ms": 500}
    errors = []
    by_sasl = {"zookeeper_auth": f"sasl:app:{MARK}", "zookeeper_authentication": "digest"}
    file = tmp_path / "credentials"
    file.write_text(by_sasl["zookeeper_auth"])
    by_file = {**by_sasl, "zookeeper_auth": None, "zookeeper_auth_file": str(file)}
    with MemoryZooKeeper(users={"app": MARK}) as server, MemoryZooKeeper(users={}) as other:
        ports = server.port, other.port, 1
        for port, given in itertools.product(ports, (SECRETS, by_sasl, by_file)):
            where = {"zookeeper": f"127.0.0.1:{port}", **given, **bounds}
            with hqueue.connect(**where) as client:  # type: ignore[arg-type]
                for ask in (client.coordination.workers.list, lambda: client.queue("q")):
                    try:
                        ask()
                    except hqueue.HQueueError as exc:
                        errors.append(_with_locals(exc))
    assert "Connecting to" in everything()
    assert len(errors) > 6
    assert not shows(everything() + "".join(errors) + str(capfd.readouterr()))


def _with_locals(error: BaseException) -> str:
    """What a tool shows that shows the variables of all frames, but for those of the test's own."""
    found = traceback.TracebackException.from_exception(error, capture_locals=True)
    texts = []
    each: traceback.TracebackException | None = found
    while each is not None:
        texts += [
            repr(frame.locals) for frame in each.stack if "test_secrets" not in frame.filename
        ]
        texts.append(str(each))
        each = each.__cause__ or each.__context__
    return "".join(texts)


def test_no_log_of_a_run_over_memory_shows_a_secret_or_a_key(
    everything: Callable[[], str], certificates: Certificates, capfd: pytest.CaptureFixture[str]
) -> None:
    secure = {**SECRETS, "delivery_principals": "worker,hub"}
    backend = MemoryBackend().apart(2_000)
    names = ("app", "worker", "hub")
    keys = []
    with contextlib.ExitStack() as stack:

        def connect(name: str) -> hqueue.Client:
            found = certificates.of(name)
            keys.extend(_private(found["tls_certificate"]))
            return stack.enter_context(backend.connect(**found, **secure))

        client = connect("app")
        queue = client.create_queue("q", partitions=2)
        stack.enter_context(WorkerThread(connect("worker")))
        hub = stack.enter_context(HubThread(connect("hub"), "q", api_port=0))
        got = Received()
        with queue.subscriber(Subscription("app"), got, host="127.0.0.1"):
            got.await_values(put_numbers(queue, range(10)))
        hubs = hqueue.connect_hubs(
            [hub.address], queue="q", **certificates.of("app"), delivery_principals="hub"
        )
        topic = stack.enter_context(hubs).topic("t")
        came: list[Any] = []
        with topic.subscribe("app", came.extend):
            topic.publish(b"v")
            wait_for(lambda: came, "it is delivered")
        hubs.queue().put([Message("t", b"v")])
        texts = [repr(client), repr(hubs), repr(client.settings), repr(hubs.settings)]
        with open(os.devnull, "w", encoding="ascii"):
            faulthandler.dump_traceback(sys.stderr)
    assert len(names) * 2 <= len(keys)
    shown = everything() + "".join(texts) + str(capfd.readouterr())
    assert not shows(shown)
    assert not [key for key in keys if key in shown]
