"""Where a worker says that it is, and where it listens."""

from __future__ import annotations

import socket
from collections.abc import Mapping

import pytest

from hqueue import SettingsError
from hqueue_workers import WorkerSettings


@pytest.mark.parametrize(
    ("given", "told", "listened"),
    [
        ({}, "127.0.0.1", "127.0.0.1"),
        ({"host": "a"}, "a", "a"),
        ({"host": "a", "listen_host": "b"}, "a", "b"),
        ({"listen_host": "b"}, socket.gethostname(), "b"),
    ],
)
def test_a_worker_listens_where_it_says_unless_told_otherwise(
    given: Mapping[str, str], told: str, listened: str
) -> None:
    settings = WorkerSettings.load(given, {})
    assert (settings.host, settings.listen_host) == (told, listened)


def test_settings_come_from_the_environment_and_are_checked() -> None:
    environ = {"HQUEUE_WORKER_PORT": "7070", "HQUEUE_WORKER_DRAIN_MS": " 5 "}
    settings = WorkerSettings.load({"port": None}, environ)
    assert (settings.port, settings.drain_ms) == (7070, 5)
    for wrong in ({"port": 70_000}, {"name": "a b"}, {"threads": True}, {"lines": 1}):
        with pytest.raises(SettingsError):
            WorkerSettings.load(wrong, {})


def test_the_api_is_served_if_it_has_a_port_and_push_can_be_left_out() -> None:
    assert WorkerSettings.load({}, {}).api_port is None
    alone = WorkerSettings.load({}, {"HQUEUE_WORKER_API_PORT": "0", "HQUEUE_WORKER_PUSH": "false"})
    assert (alone.api_port, alone.push, alone.api_host) == (0, False, "127.0.0.1")
    for wrong in (
        {"push": False},
        {"push": "perhaps"},
        {"push": 1},
        {"api_port": 70_000},
        {"api_port": "x"},
        {"api_threads": 0},
        {"scanners_bytes_max": 1},
    ):
        with pytest.raises(SettingsError):
            WorkerSettings.load(wrong, {})
