"""Asks a role of this machine how it is, as probes of containers do:

    python -m hqueue_workers.probe worker|hub|console [--alive]

The address and the files of TLS come from the environment and the settings file, as the role's own
do. With ``tls`` the probe shows the process's own certificate, because its ports demand one: so
``metrics_principals`` of a worker or a hub must include its own principal.

The exit code is 0 if the role is ready; with ``--alive``, if it answers at all, for example that it
waits for ZooKeeper. It is 1 if not, with a line on stderr, and 2 if a setting is wrong.
"""

from __future__ import annotations

import argparse
import dataclasses
import http.client
import sys
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from hqueue import HQueueError, Settings, SettingsError
from hqueue.net.refusals import RefusedError
from hqueue.net.security import client_contexts
from hqueue_workers.hub.settings import HubSettings
from hqueue_workers.node.settings import WorkerSettings

__all__ = ["main", "probe"]

TIMEOUT_S = 4.0
"""For each step: connecting, and each part of the answer."""
BODY_BYTES_MAX = 4_096
EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}


class _Target(NamedTuple):
    host: str
    port: int
    path: str


def main(arguments: Sequence[str] | None = None) -> int:
    """Ask, and give the exit code."""
    parser = argparse.ArgumentParser(prog="python -m hqueue_workers.probe", description=__doc__)
    parser.add_argument("role", choices=("worker", "hub", "console"))
    parser.add_argument("--alive", action="store_true", help="any answer will do")
    options = parser.parse_args(arguments)
    try:
        fault = probe(options.role, alive=options.alive)
    except HQueueError as exc:
        print(f"hqueue: error: {exc}", file=sys.stderr)
        return 2
    if fault:
        print(fault, file=sys.stderr)
    return 1 if fault else 0


def probe(role: str, *, alive: bool = False, environ: Mapping[str, str] | None = None) -> str:
    """Ask a role of this machine for its health; what is wrong with it, empty if nothing is.

    Args:
        role: ``worker``, ``hub`` or ``console``.
        alive: whether any answer will do.
        environ: the environment; the process's own if None.

    Raises:
        SettingsError: a setting is wrong, or leaves the port open.
    """
    settings = Settings.load(None, environ)
    target = _target(role, environ)
    if target.port == 0:
        raise SettingsError("a probe needs a port that is not 0", role=role)
    connection: http.client.HTTPConnection
    if settings.tls:
        # The certificate is for the host's name, and this calls the machine itself.
        relaxed = dataclasses.replace(settings, tls_verify_hostname=False)
        try:
            context = client_contexts(relaxed, "tls").current()
        except RefusedError as exc:
            return f"TLS can't be used: {exc}"
        connection = http.client.HTTPSConnection(
            target.host, target.port, timeout=TIMEOUT_S, context=context
        )
    else:
        connection = http.client.HTTPConnection(target.host, target.port, timeout=TIMEOUT_S)
    try:
        connection.request("GET", target.path)
        answer = connection.getresponse()
        body = answer.read(BODY_BYTES_MAX).decode(errors="replace").strip()
    except (OSError, http.client.HTTPException) as exc:
        return f"{role} at {target.host}:{target.port} does not answer: {exc}"
    finally:
        connection.close()
    return "" if alive or answer.status == http.HTTPStatus.OK else f"{answer.status}: {body}"


def _target(role: str, environ: Mapping[str, str] | None) -> _Target:
    if role == "console":
        # An extra, which workers and hubs don't need.
        from hqueue_workers.console.gate import HEALTH  # noqa: PLC0415
        from hqueue_workers.console.settings import ConsoleSettings  # noqa: PLC0415

        console = ConsoleSettings.load(None, environ)
        return _Target(EVERYWHERE.get(console.host, console.host), console.port, HEALTH)
    kind = WorkerSettings if role == "worker" else HubSettings
    found = kind.load(None, environ)
    host = EVERYWHERE.get(found.metrics_host, found.metrics_host)
    return _Target(host, found.metrics_port, "/health")


if __name__ == "__main__":
    sys.exit(main())
