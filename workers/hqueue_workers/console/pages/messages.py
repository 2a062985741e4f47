"""Pages of messages: the browser of a queue, and one message."""

from __future__ import annotations

import json

from starlette.requests import Request
from starlette.responses import Response

from hqueue import InvalidInputError, MessageID, ReceivedMessage
from hqueue.position import parse_position
from hqueue.settings.names import EVERYBODY
from hqueue.texts.documents import data_fields, extra_fields
from hqueue.texts.shown import iso_timestamp
from hqueue_workers.console import reading
from hqueue_workers.console.context import (
    FIELD_LENGTH_MAX,
    PARTITION_MAX,
    Context,
    caller_of,
    whole_field,
)
from hqueue_workers.console.downloading import Download

__all__ = [
    "chosen_filter",
    "chosen_partition",
    "download_value",
    "show_message",
    "show_messages",
]

SHOWN_BYTES_MAX = 256 * 1024
ROWS = (25, 50, 100, reading.ROWS_MAX)


def chosen_filter(request: Request) -> reading.Filter:
    """The filter in a page's address.

    Raises:
        InvalidInputError: a field is too long.
    """
    texts = {name: request.query_params.get(name, "") for name in ("topic", "key", "text")}
    for name, text in texts.items():
        if len(text) > FIELD_LENGTH_MAX:
            raise InvalidInputError(
                f"the field {name} is too long", length=len(text), length_max=FIELD_LENGTH_MAX
            )
    return reading.Filter(**texts)


def chosen_partition(request: Request) -> int | None:
    """The partition in a page's address; None for all."""
    text = request.query_params.get("partition", "").strip()
    return None if not text else whole_field(text, "the partition", 0, PARTITION_MAX)


async def show_messages(context: Context, request: Request) -> Response:
    """Show the newest messages of a queue, or those from a position on."""
    name = request.path_params["queue"]
    wanted = chosen_filter(request)
    context.rights.check_sees(caller_of(request), name, wanted.topic or EVERYBODY)
    given = request.query_params
    rows = whole_field(given.get("rows") or "50", "the number of rows", 1, reading.ROWS_MAX)
    partition = chosen_partition(request)
    start, before = _position(given.get("start", "")), _position(given.get("before", ""))
    async with context.searches, await context.client.queue(name) as queue:
        if start is None:
            found = await reading.read_newest(queue, partition, before, wanted, rows)
            found.messages.reverse()
        else:
            found = await reading.read_onwards(queue, partition, start, wanted, rows)
        partitions = queue.partitions
    return context.renderer.page(
        request,
        "messages.html",
        queue=name,
        partitions=partitions,
        found=found,
        wanted=wanted,
        partition=partition,
        start=given.get("start", ""),
        rows=rows,
        choices=sorted({*ROWS, rows}),
        bounds=reading,
    )


async def read_message(context: Context, request: Request) -> ReceivedMessage:
    """The message that an address names, if the caller may read it.

    Raises:
        InvalidInputError: there is no such message.
        NotAllowedError: the caller may not read it.
        HQueueError: it can't be read.
    """
    name, caller = request.path_params["queue"], caller_of(request)
    context.rights.check_sees(caller, name)
    partition = whole_field(request.path_params["partition"], "the partition", 0, PARTITION_MAX)
    message_id = MessageID.parse(request.path_params["id"])
    async with context.searches, await context.client.queue(name) as queue:
        message = await reading.read_one(queue, partition, message_id)
    if message is None:
        raise InvalidInputError(
            "there is no message with this ID now: it has expired, or there never was one",
            partition=partition,
            id=str(message_id),
        )
    context.rights.check_sees(caller, name, message.topic)
    return message


async def show_message(context: Context, request: Request) -> Response:
    """Show one message: its value as JSON or text and in hexadecimal, its key and headers."""
    name, message = request.path_params["queue"], await read_message(context, request)
    partition = message.partition
    document = {
        "queue": name,
        "partition": partition,
        "id": str(message.id),
        "timestamp": iso_timestamp(message.id.timestamp),
        "topic": message.topic,
        **extra_fields(message),
        **data_fields("value", message.value[:SHOWN_BYTES_MAX]),
    }
    return context.renderer.page(
        request,
        "message.html",
        queue=name,
        message=message,
        pretty=_pretty(message.value),
        document=json.dumps(document, ensure_ascii=False, indent=2),
        bytes_max=SHOWN_BYTES_MAX,
    )


async def download_value(context: Context, request: Request) -> Response:
    """Send a message's whole value as a file, which the browser saves and does not show."""
    await context.downloads.acquire()
    try:
        message = await read_message(context, request)
    except BaseException:
        context.downloads.release()
        raise
    queue = request.path_params["queue"].replace(":", "-")
    name = f"{queue}-{message.partition}-{message.id}.bin"
    return Download(message.value, name, context.downloads.release)


def _position(text: str) -> MessageID | None:
    stripped = text.strip()[:FIELD_LENGTH_MAX]
    return parse_position(stripped) if stripped else None


def _pretty(value: bytes) -> str | None:
    """A JSON value with a line for each field; None if it is not JSON, or too large."""
    if len(value) > SHOWN_BYTES_MAX:
        return None
    try:
        parsed = json.loads(value)
        text = json.dumps(parsed, ensure_ascii=False, indent=2)
    except (ValueError, RecursionError):
        return None
    return text if len(text) <= 4 * SHOWN_BYTES_MAX else None
