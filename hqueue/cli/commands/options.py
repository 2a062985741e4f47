"""Arguments and options that several commands have alike."""

from __future__ import annotations

from typing import Annotated

import typer

from hqueue.cli.formats import Format
from hqueue.cli.registering import duration_option

Queue = Annotated[str, typer.Argument(metavar="QUEUE", help="The queue's name.")]
Topic = Annotated[str, typer.Argument(metavar="TOPIC", help="The topic.")]
Partitions = Annotated[
    list[int] | None,
    typer.Option("--partition", "-p", help="A partition; all if none is given."),
]
Topics = Annotated[
    list[str] | None, typer.Option("--topic", "-t", help="A topic; all if none is given.")
]
MessageFormat = Annotated[
    Format,
    typer.Option(
        "--format",
        help="text: time, partition, ID, topic, value. json: a document a line, with the key and "
        "headers of a message that has some. raw: the value and a newline. length-prefixed: the "
        "value behind its length. put reads the last three.",
    ),
]
PrintKey = Annotated[
    bool, typer.Option("--print-key", help="In text: also the key, before the value; - if none.")
]
PrintHeaders = Annotated[
    bool,
    typer.Option(
        "--print-headers",
        help="In text: also the headers, before the value, as NAME=VALUE,NAME=VALUE; - if none.",
    ),
]
Limit = Annotated[
    int | None, typer.Option("--limit", "-n", min=1, help="End after so many messages.")
]
Idle = Annotated[
    int | None,
    duration_option("Follow until nothing came for so long.", "--idle-ms", low_ms=1),
]
Json = Annotated[bool, typer.Option("--json", help="JSON, a document a line.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
