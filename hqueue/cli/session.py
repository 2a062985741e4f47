"""What the commands of one call, or of one shell, share: settings and the connection."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import typer

from hqueue.cli.exits import ExitCode, say
from hqueue.errors import InvalidInputError

if TYPE_CHECKING:
    from hqueue.cli.absence import Absence
    from hqueue.client import Client

__all__ = ["PROGRAM", "Session", "session_of"]

PROGRAM = "hqueue"


class Session:
    """Connects when the first command needs it, and closes the connection at its end."""

    def __init__(self) -> None:
        self.given: dict[str, Any] = {}
        """The settings that were given as options, by name."""
        self.verbose = 0
        self.in_shell = False
        self.scripted = False
        """Whether commands come from a pipe into the shell: nobody can be asked."""
        self._client: Client | None = None
        self._absence: Absence | None = None

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; the next command that needs one opens another."""
        if self._absence is not None:
            self._absence.cancel()
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
            from hqueue.cli.absence import hbase_absence  # noqa: PLC0415

            self.watch(hbase_absence(self._client.settings, self.given))
        return self._client

    def watch(self, absence: Absence) -> None:
        """Report before long if something that the command needs is missing."""
        if self._absence is not None:
            self._absence.cancel()
        self._absence = absence
        absence.start()

    def say_absence(self) -> None:
        """Report at once what the command needs and did not find: the command has failed."""
        if self._absence is not None:
            self._absence.say(trying=False)

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
            raise InvalidInputError(
                "there is no terminal to ask for confirmation: give --yes to confirm"
            )
        if not typer.confirm(question, err=True):
            say("Nothing was done.")
            raise typer.Exit(ExitCode.FAILED)


def session_of(context: typer.Context) -> Session:
    """The session that a command runs in."""
    session = context.obj
    assert isinstance(session, Session)
    return session
