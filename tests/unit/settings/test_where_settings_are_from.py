"""An error about a setting says where it is from; what Kubernetes sets is passed by."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hqueue import Settings, SettingsError
from hqueue.settings import loading
from hqueue_workers.hub.settings import HubSettings
from hqueue_workers.node.settings import WorkerSettings

Load = Callable[[dict[str, Any], dict[str, str]], object]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """An environment without files of the user's."""
    monkeypatch.setattr(loading, "_warned", set())
    path = tmp_path / "hqueue.toml"
    path.touch()
    return {"HQUEUE_CONFIG": str(path), "HQUEUE_LOCAL_HOME": str(tmp_path / "none")}


def links(prefix: str, port: int = 2181) -> dict[str, str]:
    """What Kubernetes makes of a Service with two ports."""
    return {
        f"{prefix}_SERVICE_HOST": "10.0.0.1",
        f"{prefix}_SERVICE_PORT": str(port),
        f"{prefix}_SERVICE_PORT_CLIENT_API": str(port),
        f"{prefix}_PORT": f"tcp://10.0.0.1:{port}",
        f"{prefix}_PORT_{port}_TCP": f"tcp://10.0.0.1:{port}",
        f"{prefix}_PORT_{port}_TCP_PROTO": "tcp",
        f"{prefix}_PORT_{port}_TCP_PORT": str(port),
        f"{prefix}_PORT_{port}_TCP_ADDR": "10.0.0.1",
        f"{prefix}_PORT_{port}_UDP_ADDR": "10.0.0.1",
    }


def test_variables_that_kubernetes_makes_of_services_are_no_settings(
    home: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    services = ("HQUEUE", "HQUEUE_WORKER", "HQUEUE_HUB", "HQUEUE_HUBS", "HQUEUE_ZOOKEEPER")
    environ = {**home, "HQUEUE_CONNECT_TIMEOUT_MS": "77", "HQUEUE_WORKER_THREADS": "7"}
    for service in services:
        environ |= links(service)
    for _ in range(3):
        assert Settings.load({}, environ).connect_timeout_ms == 77
        assert WorkerSettings.load({}, environ).threads == 7
        assert HubSettings.load({}, environ).port == HubSettings().port
    warned = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(warned) == 2, "one each of those that have the name of a setting"
    assert "HQUEUE_WORKER_PORT" in warned[0]
    assert "HQUEUE_HUB_PORT" in warned[1]


def test_a_port_that_is_given_in_the_environment_is_one(home: dict[str, str]) -> None:
    assert WorkerSettings.load({}, {**home, "HQUEUE_WORKER_PORT": "9000"}).port == 9000


@pytest.mark.parametrize(
    ("load", "variable", "value"),
    [
        (Settings.load, "HQUEUE_REQUEST_TIMEOUT_MS", "soon"),
        (Settings.load, "HQUEUE_GATEWAYS", "host:x"),
        (Settings.load, "HQUEUE_HBASE_MASTERS", "h:x"),
        (Settings.load, "HQUEUE_ZOOKEEPER_AUTH", "secret"),
        (Settings.load, "HQUEUE_TRANSPORT", "pigeon"),
        (Settings.load, "HQUEUE_GATEWAY", "a"),
        (WorkerSettings.load, "HQUEUE_WORKER_PORT", "70000"),
        (WorkerSettings.load, "HQUEUE_WORKER_HUB_QUEUES", "a/b"),
        (WorkerSettings.load, "HQUEUE_WORKER_THREAD", "1"),
        (HubSettings.load, "HQUEUE_HUB_CHOICE", "best"),
    ],
)
def test_an_error_about_what_the_environment_has_names_the_variable(
    home: dict[str, str], load: Load, variable: str, value: str
) -> None:
    with pytest.raises(SettingsError) as raised:
        load({}, {**home, variable: value})
    assert raised.value.variable == variable
    assert value == "secret" or value in str(raised.value) or "unknown" in str(raised.value)
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize(
    ("load", "text", "line"),
    [
        (Settings.load, '# ours\nzookeeper = "z"\ngateways = ["host:x"]\n', 3),
        (Settings.load, 'hbase_masters = "h:x"\n[worker]\nport = 1\n', 1),
        (Settings.load, '\n"protocol" = "?"\n', 2),
        (Settings.load, "\nzookeper = 1\n", 2),
        (Settings.load, "\n\nhbase = = 1\n", 3),
        (WorkerSettings.load, 'port = "x"\n[hub]\nport = 1\n[worker]\nport = 70000\n', 5),
        (WorkerSettings.load, "\nworker = 1\n", 2),
        (HubSettings.load, "[ hub ]\nprot = 1\n", 2),
        (HubSettings.load, "[hub]\nthreads =\n", 2),
    ],
)
def test_an_error_about_what_a_file_has_names_the_file_and_the_line(
    home: dict[str, str], load: Load, text: str, line: int
) -> None:
    Path(home["HQUEUE_CONFIG"]).write_text(text)
    with pytest.raises(SettingsError) as raised:
        load({}, home)
    assert (raised.value.file, raised.value.line) == (home["HQUEUE_CONFIG"], line)


def test_an_error_about_an_argument_names_no_other_place(home: dict[str, str]) -> None:
    with pytest.raises(SettingsError) as raised:
        Settings.load({"transport": "pigeon"}, {**home, "HQUEUE_TRANSPORT": "framed"})
    assert not {"variable", "file", "line"} & raised.value.facts.keys()


def test_a_local_server_s_connection_file_has_settings_of_roles_too(
    home: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "none").mkdir()
    (tmp_path / "none" / "connection.toml").write_text(
        "connect_timeout_ms = 77\n[worker]\nthreads = 7\n[hub]\nthreads = 8\n"
    )
    assert Settings.load({}, home).connect_timeout_ms == 77
    assert WorkerSettings.load({}, home).threads == 7
    assert HubSettings.load({}, home).threads == 8
    Path(home["HQUEUE_CONFIG"]).write_text("[hub]\nthreads = 9\n")
    assert HubSettings.load({}, home).threads == 9


def test_one_setting_of_a_role_is_found_where_the_role_finds_it(home: dict[str, str]) -> None:
    Path(home["HQUEUE_CONFIG"]).write_text('[hub]\nadministrators = "ops"\nthreads = "no"\n')
    assert loading.find_role_setting("hub", "administrators", home) == "ops"
    assert loading.find_role_setting("worker", "administrators", home) is None
    environ = {**home, "HQUEUE_HUB_ADMINISTRATORS": "root"}
    assert loading.find_role_setting("hub", "administrators", environ) == "root"
