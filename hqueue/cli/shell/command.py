"""``hqueue shell``: the toolkit shell of Alibaba's HQueue, with all commands of the
command line.

A line is executed by the same application that the command line is, in one session: the
connection stays open between commands. Only how a line is written is the shell's own, see
`hqueue.cli.shell.syntax`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from hqueue.cli.commands.inputs import STDIN, open_input
from hqueue.cli.exits import ExitCode, exit_code_of, say, show_error
from hqueue.cli.output import flush_stdout
from hqueue.cli.registering import commands
from hqueue.cli.session import PROGRAM, Session, session_of
from hqueue.cli.shell.syntax import ALIASES, TOOLKIT, parse_line
from hqueue.cli.signals import ends_by_signal
from hqueue.errors import HQueueError, InvalidInputError

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession
    from prompt_toolkit.history import History

__all__ = ["register"]

PROMPT = "hqueue> "
LEAVING = {"exit", "quit"}
HISTORY_FILE = "shell_history"


def shell(context: typer.Context) -> None:
    """Open the shell, or execute the commands that come through a pipe.

    All commands can be written as on the command line, or as in the HQueue toolkit:
    create 'q1', 32, 86400, {'hbase.hstore.compaction.min' => '16'}.
    From a pipe, the shell reads one command per line, and asks for no confirmation. The first
    command that fails ends the shell, with its exit code. "help" lists the commands, "exit" leaves.
    """
    session = session_of(context)
    if session.in_shell:
        raise InvalidInputError("the shell is running already")
    command: Any = context.find_root().command

    session.in_shell = True
    try:
        if sys.stdin.isatty():
            _converse(session, command)
        else:
            session.scripted = True
            _execute_script(session, command)
    finally:
        session.in_shell = session.scripted = False


def _execute(session: Session, command: Any, line: str) -> int | None:
    """Execute a line; its exit code, and None if the user leaves the shell."""
    try:
        arguments = parse_line(line)
    except HQueueError as exc:
        show_error(exc, verbose=session.verbose > 1)
        return exit_code_of(exc)
    if not arguments:
        return ExitCode.DONE
    if arguments[0] in LEAVING:
        return None
    try:
        command.main(args=_toolkit_help(arguments), prog_name=PROGRAM, obj=session)
    except SystemExit as exc:
        return exc.code if isinstance(exc.code, int) else ExitCode.FAILED
    finally:
        flush_stdout()
    return ExitCode.DONE


def _execute_script(session: Session, command: Any) -> None:
    with open_input(STDIN) as stream:
        for number, raw in enumerate(stream, 1):
            try:
                line = raw.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError as exc:
                raise InvalidInputError("a line is not UTF-8", line=number) from exc
            code = _execute(session, command, line)
            if code is None:
                return
            if code:
                if code != ExitCode.PIPE_CLOSED:
                    say(f"hqueue: line {number} failed: {line.strip()}")
                raise typer.Exit(code)


def _converse(session: Session, command: Any) -> None:
    prompt = _prompt_session(session, command)
    print("HQueue shell. 'help' lists the commands, Tab completes, 'exit' leaves.")
    while True:
        try:
            line = prompt.prompt(PROMPT)
        except KeyboardInterrupt:
            if ends_by_signal():
                raise
            continue  # Ctrl-C drops the line.
        except EOFError:
            return
        code = _execute(session, command, line)
        if ends_by_signal():
            raise typer.Exit(code or ExitCode.INTERRUPTED)
        if code is None:
            return


def _toolkit_help(arguments: list[str]) -> list[str]:
    """Show the toolkit's way to write a command before its help."""
    if arguments[0] != "help" or len(arguments) != 2:
        return arguments
    name = ALIASES.get(arguments[1], arguments[1])
    if name in TOOLKIT:
        form = TOOLKIT[name]
        print(f"\n Toolkit:  {form.usage}\n Example:  {form.example}", flush=True)
    return ["help", name]


def _prompt_session(session: Session, command: Any) -> PromptSession[str]:
    from prompt_toolkit import PromptSession  # noqa: PLC0415  (only for people)

    from hqueue.cli.shell.completion import ShellCompleter  # noqa: PLC0415

    return PromptSession(
        history=_history(),
        completer=ShellCompleter(command, session),
        complete_in_thread=True,
        complete_while_typing=False,
        enable_history_search=True,
    )


def _history() -> History:
    """The history file in the user's state folder; in memory if that can't be written."""
    import platformdirs  # noqa: PLC0415  (only for people)
    from prompt_toolkit.history import FileHistory, InMemoryHistory  # noqa: PLC0415

    path = Path(platformdirs.user_state_dir("hqueue")) / HISTORY_FILE
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600)
        with path.open("ab"):
            return FileHistory(str(path))
    except OSError as exc:
        say(f"The history is not kept: {exc}")
        return InMemoryHistory()


register = commands("Shell", shell)
