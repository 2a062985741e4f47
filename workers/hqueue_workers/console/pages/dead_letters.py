"""Pages of dead letters: the list, and their redrive and deletion."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from hqueue import DeadLetter, InvalidInputError, MessageID
from hqueue.aio import Queue
from hqueue.position import parse_position
from hqueue.settings.names import EVERYBODY
from hqueue.texts.questions import delete_dead_letters, redrive_dead_letters
from hqueue_workers.console.context import (
    FIELD_LENGTH_MAX,
    PARTITION_MAX,
    Context,
    caller_of,
    go_on,
    needed,
    whole_field,
)
from hqueue_workers.console.reading import BYTES_MAX
from hqueue_workers.console.rendering import query

__all__ = ["change_dead_letters", "show_dead_letters"]

ROWS_MAX = 100
READ_S_MAX = 5.0
CHANGED_MAX = 1_000
"""A form redrives or deletes at most this many."""
CHANGE_S_MAX = 30.0


class _Wanted(NamedTuple):
    """Which dead letters are listed or changed."""

    subscriber: str | None
    group: str | None
    topic: str | None
    reason: str | None
    partition: int | None
    since: str | None

    @classmethod
    def of(cls, fields: Mapping[str, str]) -> _Wanted:
        """What the fields of an address or of a form say.

        Raises:
            InvalidInputError: a field is not valid, or both owners are given.
        """
        given = {name: fields.get(name, "").strip() or None for name in cls._fields}
        number = given["partition"]
        if given["subscriber"] and given["group"]:
            raise InvalidInputError("give a subscriber or a group, not both")
        for name, text in given.items():
            if text is not None and len(text) > FIELD_LENGTH_MAX:
                raise InvalidInputError(f"the field {name} is too long")
        partition = (
            None if number is None else whole_field(number, "the partition", 0, PARTITION_MAX)
        )
        return cls(
            given["subscriber"],
            given["group"],
            given["topic"],
            given["reason"],
            partition,
            given["since"],
        )

    async def read(self, queue: Queue, count: int, seconds: float) -> tuple[list[DeadLetter], str]:
        """Read up to this many. Also returns the bound that ended it; empty at the end."""
        found: list[DeadLetter] = []
        letters = queue.dead_letters.waiting(
            self.subscriber,
            self.partition,
            group=self.group,
            topic=self.topic,
            reason=self.reason,
            since=None if self.since is None else parse_position(self.since),
        )

        async def read() -> str:
            size = 0
            async for letter in letters:
                found.append(letter)
                size += letter.message.size
                if len(found) >= count:
                    return "rows"
                if size >= BYTES_MAX:
                    return "bytes"
            return ""

        task = asyncio.ensure_future(read())
        try:
            await asyncio.wait({task}, timeout=seconds)
            return found, task.result() if task.done() else "seconds"
        finally:
            task.cancel()
            await asyncio.wait({task})
            await letters.aclose()  # type: ignore[attr-defined]


async def show_dead_letters(context: Context, request: Request) -> Response:
    """List the dead letters of a queue that were neither redriven nor deleted."""
    name, caller = request.path_params["queue"], caller_of(request)
    wanted = _Wanted.of(request.query_params)
    context.rights.check_sees(caller, name, wanted.topic or EVERYBODY)
    async with context.searches, await context.client.queue(name) as queue:
        letters, stopped = await wanted.read(queue, ROWS_MAX, READ_S_MAX)
    owner = wanted.subscriber or wanted.group
    return context.renderer.page(
        request,
        "dead_letters.html",
        queue=name,
        wanted=wanted,
        letters=letters,
        stopped=stopped,
        seconds=READ_S_MAX,
        changed_max=CHANGED_MAX,
        may_change={
            each: context.rights.may_change(caller, name, each)
            for each in {letter.owner.name for letter in letters}
        },
        may_change_all=owner is not None and context.rights.may_change(caller, name, owner),
        done=request.query_params.get("done"),
        count=request.query_params.get("count", "")[:10],
    )


async def change_dead_letters(context: Context, request: Request) -> Response:
    """Redrive or delete one dead letter, or all that are listed of an owner, after a question."""
    name, caller = request.path_params["queue"], caller_of(request)
    fields = await context.form(request)
    action, wanted = needed(fields, "action"), _Wanted.of(fields)
    owner = wanted.subscriber or wanted.group
    if action not in ("redrive", "delete") or owner is None:
        raise InvalidInputError("the form must name an action, and a subscriber or a group")
    context.rights.check_change(caller, f"{action}-dead-letters", name, owner)
    chosen = MessageID.parse(fields["id"]) if fields.get("id") else None
    if chosen is not None and wanted.partition is None:
        raise InvalidInputError("a dead letter's ID needs its partition")
    path = f"/queues/{name}/dead-letters"
    kept = wanted._asdict() if chosen is None else _owner_of(wanted)
    back = query(path, **kept)
    if fields.get("confirmed") != "yes":
        ask = redrive_dead_letters if action == "redrive" else delete_dead_letters
        what = f"At most {CHANGED_MAX:,} at a time, the oldest first."
        if chosen is not None:
            what = f"Partition {wanted.partition}, ID {chosen}."
        question = ask(owner, name, None if chosen is None else str(chosen))
        return context.renderer.question(request, question, what, fields, back)
    async with context.searches, await context.client.queue(name) as queue:
        if chosen is None:
            letters, _ = await wanted.read(queue, CHANGED_MAX, CHANGE_S_MAX)
        else:
            one = wanted._replace(since=str(chosen), topic=None, reason=None)
            found, _ = await one.read(queue, 1, CHANGE_S_MAX)
            letters = [each for each in found if each.id == chosen]
        if not letters:
            raise InvalidInputError(
                "no such dead letter is waiting: it was never put, or it was redriven or deleted "
                "already"
            )
        change = queue.dead_letters.redrive if action == "redrive" else queue.dead_letters.delete
        letters_of = {"queue": name, "name": owner, "count": str(len(letters))}
        with context.rights.changing(caller, f"{action}-dead-letters", **letters_of):
            count = await change(letters)
    done = "redriven" if action == "redrive" else "deleted"
    return go_on(query(path, **_owner_of(wanted), done=done, count=count))


def _owner_of(wanted: _Wanted) -> dict[str, str | None]:
    """The owner alone: where a page goes on after one dead letter was changed."""
    return {"subscriber": wanted.subscriber, "group": wanted.group}
