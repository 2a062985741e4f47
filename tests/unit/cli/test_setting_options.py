"""The options of commands that settings classes describe."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Annotated, Any

import pytest
import typer
from typer.testing import CliRunner

from hqueue.cli.app import app
from hqueue.cli.setting_options import options_of

TEXT, WHOLE, DURATION, SWITCH = "text", "whole", "duration", "switch"

OPTIONS = {
    "": {
        TEXT: "hbase hbase-masters gateways zookeeper zookeeper-root transport protocol",
        DURATION: "connect-timeout-ms request-timeout-ms operation-timeout-ms clock-skew-ms-max",
    },
    "worker": {
        TEXT: "name host listen-host region-host metrics-host hub-queues api-host "
        "api-principals metrics-principals notification-principals quotas authorizer "
        "administrators",
        WHOLE: "port metrics-port threads memory-bytes-max connections-per-subscriber "
        "pushed-bytes-max api-port api-threads api-connections-max scanners-max "
        "scanner-bytes-max scanners-bytes-max",
        DURATION: "poll-ms-max checkpoint-ms drain-ms api-idle-ms",
        SWITCH: "push",
    },
    "hub": {
        TEXT: "host listen-host metrics-host placement-policy callback-networks api-host "
        "authorizer creators administrators names api-principals metrics-principals quotas",
        WHOLE: "port metrics-port threads connections-max topics-max topic-creations-per-hour-max "
        "pending-bytes-max subscriptions-max deliveries-max api-port",
        DURATION: "session-ms balance-ms drain-ms",
    },
}
"""The options as they were when each stood in its command."""

OWN = {
    "": {"--verbose", "--version", "--install-completion", "--show-completion"},
    "worker": set(),
    "hub": set(),
}
"""Options that are no settings."""


def command_of(name: str) -> Any:
    root: Any = typer.main.get_command(app)
    context = root.make_context("hqueue", [], resilient_parsing=True)
    return root.get_command(context, name) if name else root


def options(command: str) -> list[Any]:
    return [each for each in command_of(command).params if each.opts[0].startswith("--")]


def read(command: str, *arguments: str) -> Any:
    """What a command makes of an option and its value; None if it refuses it."""
    name = arguments[0].removeprefix("--").replace("-", "_")
    rest = {"": ["help"], "worker": [], "hub": ["q"]}[command]
    try:
        return command_of(command).make_context(command, [*arguments, *rest]).params[name]
    except typer.BadParameter:
        return None


def kind_of(command: str, option: Any) -> str:
    (name,) = option.opts
    if option.is_flag:
        assert read(command, name) is True
        return SWITCH
    if read(command, name, "2s") == 2_000:
        assert option.metavar == "MS|5s|2m"
        return DURATION
    assert option.metavar is None
    if read(command, name, "2s") is None:
        assert read(command, name, "2") == 2
        return WHOLE
    assert read(command, name, "2s") == "2s"
    return TEXT


@pytest.mark.parametrize("command", OPTIONS)
def test_a_command_has_the_options_that_its_settings_class_describes(command: str) -> None:
    found = {each.opts[0]: each for each in options(command)}
    expected = {
        f"--{name}": kind for kind, names in OPTIONS[command].items() for name in names.split()
    }
    assert found.keys() - OWN[command] == expected.keys()
    for name, kind in expected.items():
        option = found[name]
        assert kind_of(command, option) == kind, name
        assert option.opts == [name]
        assert option.secondary_opts == ([f"--no-{name[2:]}"] if kind == SWITCH else [])
        assert (option.default, option.envvar, option.required) == (None, None, False)


@pytest.mark.parametrize("command", OPTIONS)
def test_the_help_of_an_option_is_a_sentence(command: str) -> None:
    for option in options(command):
        assert option.help[0].isupper() or option.help.startswith("hqueue"), option.help
        assert option.help.endswith("."), option.help
        assert "`" not in option.help


@dataclasses.dataclass(frozen=True)
class Base:
    far: int | None = None
    """A number that is inherited. A second sentence."""


@dataclasses.dataclass(frozen=True)
class Described(Base):
    word: str = "a"
    """A text, which is not `wait_ms`, and not ``far``; of two
    lines. More."""

    wait_ms: int = 1
    """A duration."""

    on: bool = True
    """A switch."""


def made(**chosen: Any) -> tuple[typer.Typer, list[Any]]:
    calls: list[Any] = []
    made_app = typer.Typer()

    @made_app.command()
    @options_of(Described, **chosen)
    def run(
        argument: Annotated[str, typer.Argument()], *, given: Mapping[str, Any], last: int = 7
    ) -> None:
        calls.append((argument, dict(given), last))

    return made_app, calls


def test_what_is_given_comes_by_the_settings_names_and_the_rest_is_none() -> None:
    made_app, calls = made()
    arguments = ["x", "--word", "w", "--wait-ms", "2s", "--no-on", "--last", "8"]
    assert CliRunner().invoke(made_app, arguments).exit_code == 0
    assert CliRunner().invoke(made_app, ["x", "--far", "3"]).exit_code == 0
    none = {"word": None, "wait_ms": None, "on": None, "far": None}
    assert calls == [
        ("x", {"word": "w", "wait_ms": 2_000, "on": False, "far": None}, 8),
        ("x", {**none, "far": 3}, 7),
    ]


def test_the_first_sentence_names_options_and_leaves_literals() -> None:
    command: Any = typer.main.get_command(made()[0])
    helps = {each.name: getattr(each, "help", None) for each in command.params}
    assert helps["word"] == "A text, which is not --wait-ms, and not far; of two lines."
    assert helps["far"] == "A number that is inherited."
    own_first = [each.name for each in command.params]
    assert own_first[1:6] == ["word", "wait_ms", "on", "far", "last"]


def test_fields_that_are_left_out_are_no_options_and_unknown_ones_are_refused() -> None:
    made_app, _ = made(without=("on",))
    assert CliRunner().invoke(made_app, ["x", "--no-on"]).exit_code == 2
    for wrong in ({"names": ("nowhere",)}, {"without": ("nowhere",)}):
        with pytest.raises(TypeError, match="Described"):
            made(**wrong)
