"""A Thrift server that stays in bounds, whatever calls it."""

from __future__ import annotations

import itertools
import queue
import select
import socket
import threading
from collections.abc import Callable, Collection
from contextlib import nullcontext
from typing import Any

from hqueue.errors import HQueueError
from hqueue.rpc.accepting import FILE_ROOM, Acceptor
from hqueue.rpc.call_loop import LIGHT_BYTES, CallLoop
from hqueue.rpc.callers import Bounds
from hqueue.rpc.calls import OBJECT_BYTES, call_head
from hqueue.rpc.gathering import CallGatherer, QuickCall
from hqueue.rpc.messages import Processor, RefusedCallError, forget_frames
from hqueue.rpc.served_connection import ServedConnection
from hqueue.runtime.fork import register
from hqueue.runtime.threads import end, start
from hqueue.runtime.turns import short_turns
from hqueue.settings.limits import BATCH_MESSAGES_MAX, CALL_HEADERS_MAX

__all__ = ["ThriftServer", "calling_host"]

CONTAINERS_MAX = 1 + 3 * BATCH_MESSAGES_MAX + CALL_HEADERS_MAX
"""Of a call: the largest batch is a list of messages, each with an ID and a list of headers."""
MADE_BYTES_MAX = CONTAINERS_MAX * OBJECT_BYTES
"""Of memory, for what is made of a call; and for that of all large calls that are read at a time,
with their bytes, if they are several."""
HELD_BYTES_MIN = 64 * 1024 * 1024
QUICK_BYTES_MAX = HELD_BYTES_MIN // 2
"""What may be made of a call before it is served. So one caller alone never holds more than all may
together, whatever its call: it has as many bytes as a call may have, and this."""
SMALL_CALL_BYTES = 16 * 1024
"""What a call whose answer is large takes itself, at most."""
SILENT_MS_MAX = 600_000.0
END_S = 10.0
"""How long a thread that serves nothing may take to end."""
TOGETHER_MAX = 4
"""Calls of one caller that came together and are served one after another."""
STAY_MS = 50
"""How long a thread waits for the next call of the caller that it has just answered."""


_calls = threading.local()


def calling_host() -> str:
    """The IP address whose call the thread answers; empty where it answers none."""
    return getattr(_calls, "host", "")


class ThriftServer:
    """Serves a Thrift service over the binary protocol, unframed.

    One thread, the loop, watches all connections: it accepts them, gathers calls, and sends what a
    caller does not take at once of its answer. The others are given whole calls, and wait for no
    caller: but for a moment, for the next call of the one that was just answered, while a quarter
    of them are free, so that calls in quick succession are not handed from thread to thread.
    A caller that sends what is no call, too much, or half a call and then nothing, or does not read
    its answer, is hung up on; others don't notice. If it can be seen what it calls it is told why
    before. A forked child has none of it.

    Methods whose answers are large have half of the threads at a time; their further calls wait for
    their turn among the large ones. So however many make them, other calls find a thread.

    A handler may return a future: the caller is answered when that is done, and waits for it
    without a thread. So many may wait as there may be connections.

    Memory: what has come of all calls, and what was not read of all answers, has a bound together;
    those that began first are hung up on beyond it. No call reaches thriftpy2 before a `CallWalk`
    has found its end, and counted what will be made of it: large ones are read one after another,
    if they are too much together. One whose turn has not come after `idle_ms_max`, or for which
    there is no room to wait, is not served: its caller is told to call again.

    Connections: with as many as there may be, one that has made no call yet goes for each that
    comes, the oldest first, or else the one that was idle for longest, if more than a second.
    Where the process may not open as many files, there are fewer.

    Args:
        service: the service, as `hqueue.rpc.services.load` has it.
        handler: has its methods.
        listener: a socket that listens. It is the server's from now on.
        threads: calls answered at a time.
        connections_max: at a time.
        call_bytes_max: the bytes of a call.
        idle_ms_max: how long a call that has begun may stand still, or an answer that is read; and
            it may take twice that, and as long again for every 64 KiB.
        silent_ms_max: how long a connection may be silent between calls.
        large_answers: methods whose answers may be large.
        quick: makes a reader for calls in the usual layout, given the bytes that a call may have.
            Calls in any other go to the handler.
        as_declared: the IDL's exception for a call that is not served: `InvalidInputError` for what
            no server would read, `BufferFullError` if calling again helps. Thrift's own if None.
    """

    def __init__(
        self,
        service: Any,
        handler: object,
        listener: socket.socket,
        *,
        threads: int,
        connections_max: int,
        call_bytes_max: int,
        idle_ms_max: float,
        silent_ms_max: float = SILENT_MS_MAX,
        large_answers: Collection[str] = (),
        quick: Callable[[int], QuickCall] | None = None,
        as_declared: Callable[[HQueueError], Exception] | None = None,
    ) -> None:
        self._processor = Processor(service, handler)
        self._large_answers = frozenset(large_answers)
        share_bytes = MADE_BYTES_MAX // max(1, threads // 2) - SMALL_CALL_BYTES
        self._large_answer_bytes = max(LIGHT_BYTES + 1, share_bytes)
        self._as_declared = as_declared or (lambda error: RefusedCallError(str(error)))
        whose = getattr(service, "__name__", "a Thrift server")
        self._room = self._connections_max = FILE_ROOM.take(connections_max, whose)
        held_bytes_max = max(HELD_BYTES_MIN, 2 * call_bytes_max)
        self._ready: queue.SimpleQueue[ServedConnection | None] = queue.SimpleQueue()
        self._loop = CallLoop(
            Acceptor(listener, whose),
            Bounds(self._connections_max, held_bytes_max, idle_ms_max, silent_ms_max),
            MADE_BYTES_MAX,
            make_gatherer=lambda: CallGatherer(
                call_bytes_max,
                CONTAINERS_MAX,
                MADE_BYTES_MAX,
                quick,
                QUICK_BYTES_MAX,
                answer_bytes=self._answer_bytes if self._large_answers else None,
            ),
            serve=self._ready.put,
            refuse=self._refuse,
            whose=whose,
        )
        self._lock = threading.Lock()
        self._free = 0
        """Threads that have no connection."""
        self._thread_count = threads
        self._threads: list[threading.Thread] = []
        register(self)

    def after_fork_in_child(self) -> None:
        self._loop.after_fork_in_child()

    def start(self) -> None:
        """Serve, in the background.

        Raises:
            HQueueError: the system starts no more threads. It is to be closed then.
        """
        for number in range(self._thread_count):
            self._threads.append(start(self._serve_calls, name=f"hqueue-server-{number}"))
        self._loop.start()

    def is_own_thread(self) -> bool:
        """Whether the caller is called by this server."""
        return threading.current_thread() in self._threads

    def close(self, drain_ms: float) -> bool:
        """Accept no more calls, answer those under way, and hang up; whether all were answered.

        Args:
            drain_ms: how long calls under way may take. Their threads are left to themselves
                after that.
        """
        drained = self._loop.close(drain_ms)
        for _ in range(self._thread_count):
            self._ready.put(None)
        if drained:
            for thread in self._threads:
                end(thread, END_S)
        room, self._room = self._room, 0
        FILE_ROOM.give_back(room)
        return drained

    def _answer_bytes(self, begun: bytes) -> int:
        """What the answer to a call may take, if it may be large."""
        head = call_head(begun)
        is_large = head is not None and head[0] in self._large_answers
        return self._large_answer_bytes if is_large else 0

    def _refuse(self, begun: bytes, error: HQueueError) -> bytes:
        try:
            return self._processor.refuse(begun, self._as_declared(error))
        except BaseException:  # It must not be the loop's: the caller is hung up on without a word.
            return b""

    def _serve_calls(self) -> None:
        while True:
            with self._lock:
                self._free += 1
            connection = self._ready.get()
            with self._lock:
                self._free -= 1
            if connection is None:
                return
            if self._serve(connection):
                self._loop.give_back(connection)

    def _serve(self, connection: ServedConnection) -> bool:
        """Answer a caller until it is the loop's again; False if its answer is still to come: it is
        not this thread's any more then.
        """
        peer = connection.peer
        _calls.host = str(peer[0]) if isinstance(peer, tuple) else ""
        for served in itertools.count(1):
            try:
                answer = self._answer(connection)
            except BaseException as exc:  # Whatever it sent, it must not end this thread.
                connection.reason = f"{type(exc).__name__}: {exc}"
                forget_frames(exc)
                return True
            if answer is None:
                return False
            connection.send(answer)
            if connection.reason is not None or connection.unsent is not None:
                return True
            if not self._goes_on(connection, served):
                return True
        raise AssertionError("it goes on or returns")

    def _goes_on(self, connection: ServedConnection, served: int) -> bool:
        """Whether the caller's next call is there, and is this thread's to serve after so many."""
        connection.passed_bytes = 0
        request = connection.request = connection.gathered()
        if connection.reason is not None or self._loop.closing:
            return False
        if request is not None and served >= TOGETHER_MAX:
            # The rest is served in turn with the calls of others. One after another they would keep
            # Python's lock from all, for as many as came together.
            return False
        if request is None and 4 * self._free >= self._thread_count:
            waiting = select.poll()
            waiting.register(connection.sock, select.POLLIN)
            if waiting.poll(STAY_MS):
                connection.request = connection.receive()
        return self._loop.admits(connection)

    def _answer(self, connection: ServedConnection) -> bytes | None:
        """The answer to a connection's request; None if it is still to come."""
        later, connection.answer = connection.answer, None
        if later is not None:
            return later()
        request, connection.request = connection.request, None
        assert request is not None
        try:
            if request.answer is not None:
                return request.answer()
            with short_turns() if request.weight > LIGHT_BYTES else nullcontext():
                awaited, finish = self._processor.begin(request.data)
                if awaited is None:
                    return finish()
        finally:
            self._loop.release(connection, request.weight)
        connection.answer = finish
        awaited.add_done_callback(lambda _: self._ready.put(connection))
        return None
