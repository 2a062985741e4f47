"""What the commands of one call, or of one shell, share: settings and the connection."""

from __future__ import annotations

import sys
import threading
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

import typer

from hqueue.cli.exits import ExitCode
from hqueue.errors import InvalidInputError

if TYPE_CHECKING:
    from hqueue.client import Client
    from hqueue.settings.connection import Settings

__all__ = ["PROGRAM", "Session", "session_of"]

PROGRAM = "hqueue"

SILENCE_S = 2.0
"""After so long a user is told that HBase is not there: operations try on for a minute."""

MEETING_S = 2.4
ADDRESSES_MAX = 8
"""So long, and at so many addresses, it is looked what listens there."""


class Session:
    """Connects when the first command needs it, and closes the connection at its end."""

    def __init__(self) -> None:
        self.given: dict[str, Any] = {}
        """Settings that were given as options, by name."""
        self.verbose = 0
        self.in_shell = False
        self.scripted = False
        """Whether commands come from a pipe into the shell: nobody can be asked."""
        self._client: Client | None = None
        self._timer: threading.Timer | None = None

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; the next command that needs one opens another."""
        if self._timer is not None:
            self._timer.cancel()
        if self._client is not None:
            self._client.close()
            self._client = None

    @property
    def client(self) -> Client:
        """The connection.

        Raises:
            SettingsError: a setting has a wrong value.
        """
        if self._client is None:
            from hqueue.connecting import connect  # noqa: PLC0415  (not needed for help)

            self._client = connect(**self.given)
            silence_s = _part_of(SILENCE_S, self._client.settings)
            self._timer = threading.Timer(
                silence_s, _tell_if_away, [self._client.settings, self.given]
            )
            self._timer.daemon = True
            self._timer.start()
        return self._client

    @property
    def spark_options(self) -> dict[str, str]:
        """The settings that were given, as options of the Spark data source."""
        return {f"hqueue.{name}": str(value) for name, value in self.given.items()}

    def confirm(self, question: str, *, yes: bool) -> None:
        """Ask before something is destroyed.

        A line of a script that is piped into the shell counts as said deliberately.

        Raises:
            InvalidInputError: nobody can be asked, and ``--yes`` was not given.
            typer.Exit: the answer was no.
        """
        if yes or self.scripted:
            return
        if not sys.stdin.isatty():
            raise InvalidInputError("nobody can be asked here: give --yes to do it")
        if not typer.confirm(question, err=True):
            print("Nothing was done.", file=sys.stderr)
            raise typer.Exit(ExitCode.FAILED)


def session_of(context: typer.Context) -> Session:
    """The session that a command runs in."""
    session = context.obj
    assert isinstance(session, Session)
    return session


def _part_of(seconds: float, settings: Settings) -> float:
    """So long, or a quarter of what an operation has: it is said before the operation ends."""
    return min(seconds, settings.operation_timeout_ms / 4e3)


def _tell_if_away(settings: Settings, given: Collection[str] = ()) -> None:
    """Say so on stderr if no gateway can be reached at all, or what listens there is none;
    natively, the same of the masters that are named, or else of ZooKeeper.

    Args:
        settings: the settings.
        given: the names of those that were given as options.
    """
    from hqueue.cli.endpoints import Met, meet  # noqa: PLC0415  (not needed where all is well)
    from hqueue.settings.addresses import Address, zookeeper_servers  # noqa: PLC0415
    from hqueue.settings.connection import setting_source  # noqa: PLC0415

    if settings.hbase == "gateways":
        setting, name, wanted = "gateways", "gateway", Met.THRIFT
        addresses = [
            Address(gateway.host, port)
            for gateway in settings.gateways
            for port in (gateway.thrift1_port, gateway.thrift2_port)
        ]
        where = ", ".join(map(str, settings.gateways))
    elif settings.hbase_masters:
        setting, name, wanted = "hbase_masters", "master", Met.HBASE
        addresses = list(settings.hbase_masters)
        where = ", ".join(map(str, addresses))
    else:
        setting, name, wanted = "zookeeper", "ZooKeeper", Met.ZOOKEEPER
        addresses = zookeeper_servers(settings.zookeeper)
        where = settings.zookeeper
    met: dict[Address, Met] = {}
    bound_s = _part_of(MEETING_S, settings)
    for address in addresses[:ADDRESSES_MAX]:
        met[address] = meet(address, bound_s / min(len(addresses), ADDRESSES_MAX))
        if met[address] is wanted:
            return
    source = f"--{setting.replace('_', '-')}" if setting in given else setting_source(setting)
    found = [
        f"{address} is {each.value}" for address, each in met.items() if each is not Met.NOTHING
    ]
    text = f"no {name} answers at {where} (from {source})"
    if found:
        text += f": {', '.join(found)}"
    print(
        f"hqueue: {text}; trying on for {settings.operation_timeout_ms / 1e3:.0f} s. "
        "'hqueue local start' starts a local server.",
        file=sys.stderr,
    )
