"""The application: its commands, its global options, and what becomes of errors."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from hqueue.cli.exits import (
    EXIT_CODES_TEXT,
    ExitCode,
    OutputError,
    exit_code_of,
    is_caused_by_interrupt,
    show_error,
)
from hqueue.cli.loading import InstalledCommands, installed_packages
from hqueue.cli.output import flush_stdout
from hqueue.cli.registering import commands, unwrapped
from hqueue.cli.session import PROGRAM, Session, session_of
from hqueue.cli.setting_options import options_of
from hqueue.errors import (
    HQueueError,
    HubUnavailableError,
    InvalidInputError,
    StoreUnavailableError,
)
from hqueue.settings.connection import Settings

__all__ = ["app", "main", "run"]

_CONNECTION = (
    "hbase", "hbase_masters", "gateways", "zookeeper", "zookeeper_root", "transport", "protocol",
    "connect_timeout_ms", "request_timeout_ms", "operation_timeout_ms", "clock_skew_ms_max",
)  # fmt: skip
"""The settings of a connection that are options; the others stand in files and the environment."""

STDOUT_ERRORS = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF}
"""How writing help fails: it does not go through `hqueue.cli.output`."""


class CommandLine(TyperGroup):
    """The root of all commands: every error that is raised on purpose ends here."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.commands = InstalledCommands(self.commands)

    def invoke(self, ctx: Any) -> Any:
        """Run a command, and turn its errors into messages and exit codes."""
        try:
            return super().invoke(ctx)
        except HQueueError as exc:
            if isinstance(exc, (HubUnavailableError, StoreUnavailableError)):
                session_of(ctx).say_absence()
            show_error(exc, verbose=session_of(ctx).verbose > 1)
            if isinstance(exc, OutputError):
                _discard_stdout()
            raise typer.Exit(exit_code_of(exc)) from exc
        except BrokenPipeError as exc:
            _discard_stdout()
            raise typer.Exit(ExitCode.PIPE_CLOSED) from exc
        except KeyboardInterrupt as exc:
            raise typer.Exit(ExitCode.INTERRUPTED) from exc


app = typer.Typer(
    name=PROGRAM,
    cls=CommandLine,
    epilog=unwrapped(EXIT_CODES_TEXT),
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)


def _version(wanted: bool) -> None:
    if wanted:
        from hqueue import __version__  # noqa: PLC0415  (reads the package's metadata)

        print(__version__)
        raise typer.Exit


@app.callback()
@options_of(Settings, _CONNECTION)
def options(
    context: typer.Context,
    *,
    given: Mapping[str, Any],
    verbose: Annotated[
        int,
        typer.Option(
            "--verbose", "-v", count=True, help="Log more; given twice, debug messages, too."
        ),
    ] = 0,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """A durable, ordered, partitioned message queue that lives inside HBase.

    Settings come from these options, from HQUEUE_* in the environment, from the
    settings file, or from a running local server (hqueue local start).
    """
    session = session_of(context)
    named = {name: value for name, value in given.items() if value is not None}
    if session.in_shell:
        if named or verbose:
            raise InvalidInputError(
                "connection options can't be given inside the shell: give them when you start it"
            )
        return
    session.given = named
    session.verbose = verbose
    _log_to_stderr(verbose)


def help_(
    context: typer.Context,
    names: Annotated[list[str] | None, typer.Argument(metavar="COMMAND")] = None,
) -> None:
    """List the commands, or show how to use one."""
    parent = context.find_root()
    parent.command.main(
        args=[*(names or ()), "--help"],
        prog_name=PROGRAM,
        obj=context.obj,
    )


commands("Shell", help_)(app)


def run(arguments: Sequence[str], session: Session) -> int:
    """Run one command line in a session; its exit code. Raises nothing but bugs."""
    command = typer.main.get_command(app)
    code: int = ExitCode.DONE
    try:
        try:
            command.main(args=list(arguments), prog_name=PROGRAM, obj=session)
        except SystemExit as exc:
            code = exc.code if isinstance(exc.code, int) else ExitCode.FAILED
        flush_stdout()
    except RuntimeError as exc:
        if not is_caused_by_interrupt(exc):
            raise
        return ExitCode.INTERRUPTED
    except BrokenPipeError:
        _discard_stdout()
        return ExitCode.PIPE_CLOSED
    except OutputError as exc:
        show_error(exc)
        _discard_stdout()
        return code or ExitCode.FAILED
    except OSError as exc:
        if exc.errno not in STDOUT_ERRORS:
            raise
        show_error(OutputError("can't write to stdout", reason=str(exc)))
        _discard_stdout()
        return ExitCode.FAILED
    return code


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line, this process's own if none is given; its exit code."""
    with Session() as session:
        return run(sys.argv[1:] if arguments is None else arguments, session)


def _discard_stdout() -> None:
    """Let what is still buffered go nowhere: the interpreter flushes at exit, and would fail."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def _log_to_stderr(verbose: int) -> None:
    levels = (logging.WARNING, logging.INFO, logging.DEBUG)
    logging.basicConfig(
        stream=sys.stderr,
        format="hqueue: %(levelname)s: %(message)s" if verbose < 2 else logging.BASIC_FORMAT,
    )
    packages = installed_packages()
    for name in packages:
        logging.getLogger(name).setLevel(levels[min(verbose, 2)])
    for name in packages:
        logging.getLogger(f"{name}.ready").setLevel(min(logging.INFO, levels[min(verbose, 2)]))
    if verbose < 2:
        logging.getLogger("kazoo").setLevel(logging.ERROR)
    if not verbose:
        # Commands say these themselves.
        for name in ("hqueue.produce.producer", "hqueue.hbase.reachability"):
            logging.getLogger(name).setLevel(logging.ERROR)
