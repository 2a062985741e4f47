"""Roles in processes of their own, and what they expose."""

from __future__ import annotations

import contextlib
import http.client
import re
import socket
from collections.abc import Iterator, Mapping

from tests.acceptance.commands import Running
from tests.support.waiting import wait_for

__all__ = ["exposed", "free_port", "page", "running"]


def free_port() -> int:
    """A port that is free now."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


@contextlib.contextmanager
def running(
    *arguments: str, environment: Mapping[str, str], settings: Mapping[str, object], port: int
) -> Iterator[Running]:
    """A role whose pages are at a port, from when it is well."""
    own = {name: str(value) for name, value in settings.items()}
    role = Running(arguments, {**environment, **own})
    try:
        wait_for(lambda: page(port, "/health")[0] == 200, f"{arguments[0]} is well")
        yield role
        role.terminate()
        assert role.end().code == 0
    finally:
        role.kill()


def page(port: int, path: str) -> tuple[int, str]:
    """A page of a process, with its status; 0 if nothing answers."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    except OSError:
        return 0, ""
    finally:
        connection.close()


def exposed(port: int) -> dict[str, tuple[str, str]]:
    """The type and help of each metric that a process exposes."""
    text = page(port, "/metrics")[1]
    kinds = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE))
    helps = dict(re.findall(r"^# HELP (\S+) (.*)$", text, re.MULTILINE))
    return {
        name: (kind, helps[name]) for name, kind in kinds.items() if not name.endswith("_created")
    }
