"""A web service that publishes posted messages, and streams them to browsers as they come.

python examples/web_service.py events --port 8000
curl --data hello http://127.0.0.1:8000/topics/clicks
curl --no-buffer http://127.0.0.1:8000/topics/clicks

A browser that lost the connection names its last event in ``Last-Event-ID``, and gets every message
after that event. Ctrl-C and SIGTERM end the streams, and write the messages that are still in the
producer's buffer. Needs ``pip install fastapi sse-starlette uvicorn``.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
from collections.abc import AsyncIterator

import anyio
import uvicorn
from fastapi import FastAPI, HTTPException, Request
from sse_starlette import EventSourceResponse, ServerSentEvent

import hqueue
import hqueue.aio
from hqueue import Message, MessageID, Scan

MESSAGE_BYTES_MAX = 1 << 20


def service(queue_name: str) -> FastAPI:
    """The service. Its connection belongs to the event loop in which the service runs."""

    @contextlib.asynccontextmanager
    async def connected(app: FastAPI) -> AsyncIterator[None]:
        async with hqueue.aio.connect() as client:
            app.state.queue = await client.queue(queue_name)
            async with app.state.queue.producer() as app.state.producer:
                yield

    app = FastAPI(lifespan=connected)

    @app.post("/topics/{topic}", status_code=201)
    async def publish(topic: str, request: Request) -> dict[str, str]:
        value = bytearray()
        async for chunk in request.stream():
            value += chunk
            if len(value) > MESSAGE_BYTES_MAX:
                raise HTTPException(413, f"a message has at most {MESSAGE_BYTES_MAX} bytes")
        try:
            sent = await app.state.producer.send(Message(topic, bytes(value)))
            return {"id": str(await sent)}  # It is durable.
        except hqueue.InvalidInputError as exc:
            raise HTTPException(422, str(exc)) from exc
        except hqueue.HQueueError as exc:
            raise HTTPException(503, str(exc)) from exc

    @app.get("/topics/{topic}")
    async def stream(topic: str, request: Request) -> EventSourceResponse:
        queue: hqueue.aio.Queue = app.state.queue
        try:
            event_id = request.headers.get("last-event-id")
            starts = await ends(queue) if event_id is None else positions_of(event_id)
            scans = {each: Scan(start, topics=[topic]) for each, start in starts.items()}
            scanner = queue.combined_partition_scanner(scans, follow=True)
        except hqueue.InvalidInputError as exc:
            raise HTTPException(422, str(exc)) from exc
        except hqueue.HQueueError as exc:
            raise HTTPException(503, str(exc)) from exc
        stopping = anyio.Event()
        return EventSourceResponse(
            events(scanner, starts, stopping),
            shutdown_event=stopping,
            shutdown_grace_period=5,
        )

    return app


async def events(
    scanner: hqueue.aio.Scanner, positions: dict[int, MessageID], stopping: anyio.Event
) -> AsyncIterator[ServerSentEvent]:
    """Each message as an event, whose ID says where all partitions continue after the message. Ends
    when the server stops.
    """

    async def close() -> None:
        await stopping.wait()
        await scanner.close()

    closing = asyncio.create_task(close())
    try:
        async with scanner:
            yield ServerSentEvent(comment="ready")
            async for message in scanner:
                positions[message.partition] = message.id.next()
                event_id = json.dumps({each: str(at) for each, at in positions.items()})
                yield ServerSentEvent(message.value.decode(errors="replace"), id=event_id)
    except hqueue.ClosedError:
        pass  # The server stops.
    finally:
        closing.cancel()


async def ends(queue: hqueue.aio.Queue) -> dict[int, MessageID]:
    """Where each partition ends now."""
    return {each.partition: each.end for each in await queue.offsets()}


def positions_of(event_id: str) -> dict[int, MessageID]:
    """The positions in an event ID that `events` wrote."""
    try:
        return {int(each): MessageID.parse(text) for each, text in json.loads(event_id).items()}
    except (AttributeError, RecursionError, TypeError, ValueError) as exc:
        raise HTTPException(422, "Last-Event-ID does not come from this service") from exc


def main() -> None:
    parser = argparse.ArgumentParser(description="Publish and stream messages over HTTP.")
    parser.add_argument("queue", help="its name; it must be there")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000, help="0 for a free one")
    arguments = parser.parse_args()
    uvicorn.run(service(arguments.queue), host=arguments.host, port=arguments.port)


if __name__ == "__main__":
    main()
