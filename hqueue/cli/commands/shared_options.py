"""Arguments and options that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

from hqueue.cli.formats import Format
from hqueue.cli.registering import duration_option

Queue = Annotated[str, typer.Argument(metavar="QUEUE", help="The queue's name.")]
Topic = Annotated[str, typer.Argument(metavar="TOPIC", help="The topic.")]
Partitions = Annotated[
    list[int] | None,
    typer.Option("--partition", "-p", help="Only this partition; all if not given."),
]
Topics = Annotated[
    list[str] | None, typer.Option("--topic", "-t", help="Only this topic; all if not given.")
]
MessageFormat = Annotated[
    Format,
    typer.Option(
        "--format",
        help="text: time, partition, ID, topic, value. json: one document per line, with the "
        "message's key and headers if it has them. raw: the value and a newline. "
        "length-prefixed: the value after its length. put reads the last three, and calls raw "
        "lines.",
    ),
]
PrintKey = Annotated[
    bool,
    typer.Option(
        "--print-key", help="With text: print the key before the value; - if it has none."
    ),
]
PrintHeaders = Annotated[
    bool,
    typer.Option(
        "--print-headers",
        help="With text: print the headers before the value, as NAME=VALUE,NAME=VALUE; - if it "
        "has none.",
    ),
]
Limit = Annotated[
    int | None, typer.Option("--limit", "-n", min=1, help="End after this many messages.")
]
Idle = Annotated[
    int | None,
    duration_option("Follow until no message came for this long.", "--idle-ms", low_ms=1),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, one document per line.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
