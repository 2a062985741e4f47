"""The loop that watches a port: it waits for all callers, so that no other thread does."""

from __future__ import annotations

import contextlib
import logging
import math
import selectors
import socket
import threading
from collections.abc import Callable, Iterable

from hqueue.errors import BufferFullError, HQueueError
from hqueue.rpc.accepting import Acceptor
from hqueue.rpc.callers import Bounds, Callers
from hqueue.rpc.gathering import Gatherer, Request
from hqueue.rpc.served_connection import ServedConnection
from hqueue.runtime.clock import SYSTEM_CLOCK, Deadline
from hqueue.runtime.memory import give_back_freed
from hqueue.runtime.seldom import SeldomLog
from hqueue.runtime.threads import end, start
from hqueue.runtime.waiting import Condition

__all__ = ["LIGHT_BYTES", "CallLoop"]

logger = logging.getLogger(__name__)

LIGHT_BYTES = 1024 * 1024
"""A request that takes no more memory is served at once, whatever else is served."""
END_S = 10.0
"""How long the loop may take for its last turn."""
TRIM_BYTES = 64 * 1024 * 1024
TRIM_EVERY_MS, TRIM_LIGHT_EVERY_MS = 5_000.0, 60_000.0
"""When so much was made of calls it is given back to the system: of large ones as soon as no call
needs any of it, and now and then while there always is one; of light ones once a minute, for what
comes next would mostly fit where they were."""
LOOKS = 8
"""How often it is looked who has had their time, in that time."""
LOOK_MS_MAX = 1_000.0
PAUSE_MS = 100.0
"""Until the next look for room."""
ACCEPTS_MAX = 64
"""In a turn of the loop."""
TURN_MS = 5.0
"""In each turn, requests are gathered for about so long."""


class CallLoop:
    """A thread that accepts connections, gathers whole requests, has them served, and sends what a
    caller does not take at once of its answer.

    A connection is the loop's until its request is given to `serve`; then that thread's which
    serves it, until it is given back.

    Args:
        acceptor: accepts connections.
        bounds: of the port.
        memory_bytes_max: of all requests that are served, for those that are not light: if several
            are, together. Others wait.
        make_gatherer: of each connection.
        serve: called in the loop with a connection whose `request` has come.
        refuse: makes the answer to a call that is not served, of its first bytes and why; empty if
            there can be none.
        whose: what the log calls the server.
    """

    def __init__(
        self,
        acceptor: Acceptor,
        bounds: Bounds,
        memory_bytes_max: int,
        *,
        make_gatherer: Callable[[], Gatherer],
        serve: Callable[[ServedConnection], object],
        refuse: Callable[[bytes, HQueueError], bytes],
        whose: str,
    ) -> None:
        self._acceptor = acceptor
        self._callers: Callers[ServedConnection] = Callers(bounds)
        self._memory_bytes_max = memory_bytes_max
        self._make_gatherer = make_gatherer
        self._serve = serve
        self._refuse = refuse
        self._whose = whose
        self._look_every_ms = min(
            LOOK_MS_MAX, bounds.still_ms_max / LOOKS, bounds.idle_ms_max / LOOKS
        )
        self._look_ms = 0.0
        self._accept_ms = 0.0
        """When it is to be seen who wants to be accepted; infinite while the selector says so."""
        self._log = SeldomLog(logger)
        self._lock = threading.RLock()
        self._quiet = Condition(self._lock)
        self._back: list[ServedConnection] = []
        """Served, and the loop's again."""
        self._awake = False
        self._memory_bytes = 0
        """What was given to requests that are not light."""
        self._freed_bytes = 0
        """Of that, since memory was given back to the system."""
        self._freed_light_bytes = 0
        """Of light ones, since then: about, for threads count it without a lock."""
        self._trimmed_ms = 0.0
        self.closing = False
        """Whether no further request is served."""
        self._drained = self._ended = False
        self._woken, self._wake = socket.socketpair()
        for sock in (self._woken, self._wake):
            sock.setblocking(False)
        self._selector = selectors.DefaultSelector()
        self._listens = False
        self._thread: threading.Thread | None = None
        """It enters itself, too: an interrupted `start` leaves none that nobody knows."""

    def after_fork_in_child(self) -> None:
        # Kept open here, the port would stay taken after the parent's end.
        self._acceptor.close()
        for sock in (self._woken, self._wake):
            sock.close()
        for connection in self._callers:
            connection.sock.close()

    def start(self) -> None:
        """Accept connections from now on."""
        self._thread = start(self._watch, name="hqueue-server")

    def give_back(self, connection: ServedConnection) -> None:
        """Its request was answered, by what was sent and is `unsent`; or there is a `reason` to
        hang up, or another `request` to serve. From any thread.
        """
        with self._lock:
            self._back.append(connection)
            self._wake_up()

    def admits(self, connection: ServedConnection) -> bool:
        """Whether the thread that has just answered a caller may serve its next request, too: it is
        light, or there is the memory for it and nobody waits for that. From that thread.
        """
        request = connection.request
        if request is None or request.weight <= LIGHT_BYTES:
            return request is not None
        return not self._callers.has_queued and self._take_memory(connection, request.weight)

    def release(self, connection: ServedConnection, weight: int) -> None:
        """What was made of its request, of this weight, is needed no more. From any thread."""
        if not connection.memory_bytes:
            self._freed_light_bytes += weight
        else:
            with self._lock:
                self._memory_bytes -= connection.memory_bytes
                self._freed_bytes += connection.memory_bytes
                connection.memory_bytes = 0
                self._wake_up()

    def close(self, drain_ms: float) -> bool:
        """Accept no more, have the requests under way answered, and hang up; whether all were
        answered in time.
        """
        deadline = Deadline(SYSTEM_CLOCK, drain_ms)
        with self._lock:
            self.closing = True
            self._wake_up()
            if self._thread is not None and self._thread.is_alive():
                self._quiet.wait_for(lambda: self._drained, deadline.remaining_ms / 1e3)
            self._ended = True
            self._wake_up()
        if self._thread is not None and not end(self._thread, END_S):
            return False  # What it holds is its own still.
        for connection in self._callers:
            connection.close()
        self._acceptor.close()
        self._selector.close()
        for sock in (self._woken, self._wake):
            sock.close()
        return self._drained

    def _wake_up(self) -> None:
        """To be called with the lock."""
        if not self._awake:
            self._awake = True
            with contextlib.suppress(OSError):
                self._wake.send(b"\0")

    def _watch(self) -> None:
        with self._lock:
            if self._ended:
                return
            self._thread = threading.current_thread()
        self._selector.register(self._woken, selectors.EVENT_READ)
        wait_s: float = 0
        while True:
            # What calls for more than there is, is called for again at the next turn.
            for connection in self._in_turn(self._selector.select(wait_s)):
                try:
                    self._attend(connection)
                except BaseException as exc:  # No fault in reading a call ends the loop.
                    connection.reason = f"{type(exc).__name__}: {exc}"
                    self._hang_up(connection)
            with self._lock:
                back, self._back = self._back, []
                self._awake = False
                closing = self.closing
                if self._ended:
                    return
            now_ms = SYSTEM_CLOCK.monotonic_ms()
            for connection in back:
                self._take_back(connection)
            self._admit_queued()
            if now_ms >= self._look_ms:
                self._look_ms = now_ms + self._look_every_ms
                self._end_overdue(now_ms)
                self._callers.grow()
                self._trim(now_ms)
            if closing:
                self._drain()
            elif now_ms >= self._accept_ms:
                self._accept(now_ms)
            wait_s = max(0.0, min(self._look_ms, self._accept_ms) - now_ms) / 1e3

    def _in_turn(
        self, events: list[tuple[selectors.SelectorKey, int]]
    ) -> Iterable[ServedConnection]:
        """Those that something has come of, or that go on to read: first those of which least has
        come, for as long as a turn takes, and then the one that began first.
        """
        found: list[ServedConnection] = []
        for key, _ in events:
            if key.data is not None:
                found.append(key.data)
            elif key.fileobj is not self._woken:
                self._accept_ms = 0.0
            else:
                with contextlib.suppress(BlockingIOError):
                    self._woken.recv(4_096)
        if len(found) < 2:
            yield from found
            return
        found.sort(key=lambda connection: connection.passed_bytes)
        ends_ms = SYSTEM_CLOCK.monotonic_ms() + TURN_MS
        for at, connection in enumerate(found):
            yield connection
            if SYSTEM_CLOCK.monotonic_ms() > ends_ms:
                left = [each for each in found[at + 1 :] if each.events]
                if left:
                    yield min(left, key=lambda each: each.began_ms)
                return

    def _attend(self, connection: ServedConnection) -> None:
        """Receive what has come of a connection, or send on what it reads."""
        if not connection.events:  # It was hung up on in this turn.
            return
        if connection.leaving:
            if not connection.discard():
                connection.reason = ""
                self._hang_up(connection)
            return
        now_ms = SYSTEM_CLOCK.monotonic_ms()
        if connection.unsent is None:
            self._go_on(connection, connection.receive(), now_ms)
            return
        connection.send(connection.unsent)
        if connection.unsent is not None and connection.reason is None:
            self._callers.move(connection, connection.held, now_ms)
            return
        connection.passed_bytes = 0
        self._callers.rest(connection, now_ms)
        self._go_on(connection, connection.gathered(), now_ms)

    def _go_on(self, connection: ServedConnection, request: Request | None, now_ms: float) -> None:
        """What follows when something has come of a connection, or it was answered."""
        if connection.reason is not None:
            self._hang_up(connection)
        elif request is not None:
            self._admit(connection, request)
        elif held := connection.gatherer.held:
            if connection.held:
                self._callers.move(connection, held, now_ms)
            else:
                self._callers.begin(connection, held, now_ms)
            self._watch_for(connection, selectors.EVENT_READ)
            self._end_surplus()
        else:
            self._callers.rest(connection, now_ms)
            self._watch_for(connection, selectors.EVENT_READ)

    def _take_back(self, connection: ServedConnection) -> None:
        """A thread is done with a connection."""
        now_ms = SYSTEM_CLOCK.monotonic_ms()
        if connection.unsent is not None and connection.reason is None:
            held = len(connection.unsent.obj)  # type: ignore[arg-type]
            self._callers.begin(connection, held, now_ms)
            self._watch_for(connection, selectors.EVENT_WRITE)
            self._end_surplus()
            return
        request, connection.request = connection.request, None
        self._callers.rest(connection, now_ms)
        self._go_on(connection, request, now_ms)

    def _admit(self, connection: ServedConnection, request: Request) -> None:
        """Have a thread serve a request, once there is the memory for it."""
        if self.closing:
            self._hang_up(connection)
            return
        self._watch_for(connection, 0)
        connection.request = request
        connection.passed_bytes = 0
        if request.weight > LIGHT_BYTES:
            waits = self._callers.first_queued is not None
            if waits or not self._take_memory(connection, request.weight):
                held = len(request.data) or request.weight
                if self._callers.queue(connection, held, SYSTEM_CLOCK.monotonic_ms()):
                    self._end_surplus()
                else:
                    self._put_off(connection, "as many large calls wait for their turn as may")
                return
        self._callers.serve(connection)
        self._serve(connection)

    def _admit_queued(self) -> None:
        """Have those served for whose requests there is memory now, in their order."""
        while (connection := self._callers.first_queued) is not None:
            assert connection.request is not None
            if connection.has_left():  # Nobody would read the answer.
                connection.reason = ""
                self._hang_up(connection)
                continue
            if not self._take_memory(connection, connection.request.weight):
                return
            self._callers.serve(connection)
            self._serve(connection)

    def _take_memory(self, connection: ServedConnection, weight: int) -> bool:
        """Take the memory for a request that is not light, if it is there."""
        with self._lock:
            if self._memory_bytes and self._memory_bytes + weight > self._memory_bytes_max:
                return False
            self._memory_bytes += weight
            connection.memory_bytes = weight
            return True

    def _trim(self, now_ms: float) -> None:
        """Give back to the system what calls took."""
        since_ms = now_ms - self._trimmed_ms
        with self._lock:
            if self._freed_bytes >= TRIM_BYTES:
                if self._memory_bytes and since_ms < TRIM_EVERY_MS:
                    return
            elif self._freed_light_bytes < TRIM_BYTES or since_ms < TRIM_LIGHT_EVERY_MS:
                return
            self._freed_bytes = self._freed_light_bytes = 0
        self._trimmed_ms = now_ms
        give_back_freed()

    def _put_off(self, connection: ServedConnection, why: str) -> None:
        """Have a caller call again later, with a whole request that is not served now."""
        request, connection.request = connection.request, None
        assert request is not None
        self._log.warning("put off %s: %s", connection.peer, why)
        self._callers.serve(connection)
        answer = self._refuse(request.begun, _busy(why))
        if answer:
            connection.send(answer)
            if connection.unsent is None and connection.reason is None:
                connection.passed_bytes = 0
                connection.request = connection.gathered()
        else:
            connection.reason = why
        self.give_back(connection)

    def _watch_for(self, connection: ServedConnection, events: int) -> None:
        if events == connection.events:
            return
        if not connection.events:
            self._selector.register(connection.sock, events, connection)
        elif events:
            self._selector.modify(connection.sock, events, connection)
        else:
            self._selector.unregister(connection.sock)
        connection.events = events

    def _hang_up(self, connection: ServedConnection) -> None:
        if connection.reason:
            self._log.warning("hung up on %s: %s", connection.peer, connection.reason)
        self._watch_for(connection, 0)
        refusal, connection.refusal = connection.refusal, None
        connection.request = connection.unsent = None
        answer = self._refuse(connection.gatherer.begun, refusal) if refusal else b""
        if answer and connection.leave(answer):
            connection.gatherer = self._make_gatherer()
            self._callers.leave(connection, SYSTEM_CLOCK.monotonic_ms())
            self._watch_for(connection, selectors.EVENT_READ)
            return
        self._callers.drop(connection)
        connection.close(abort=bool(connection.reason))

    def _end_surplus(self) -> None:
        for caller in self._callers.surplus():
            caller.reason = "all callers together hold as much memory as they may"
            if caller.unsent is None:
                caller.refusal = _busy(caller.reason)
            self._hang_up(caller)

    def _end_overdue(self, now_ms: float) -> None:
        for caller in self._callers.not_served(now_ms):
            self._put_off(caller, "other large calls took all of the time that it may wait")
        for caller, reason in self._callers.overdue(now_ms):
            if caller.may_go():
                caller.reason = reason
                self._hang_up(caller)

    def _accept(self, now_ms: float) -> None:
        """Accept those that have come, as far as there is room."""
        room = True
        for _ in range(ACCEPTS_MAX):
            room = self._make_room(now_ms)
            accepted = self._acceptor.accept() if room else None
            if accepted is not None:
                connection = ServedConnection(*accepted, self._make_gatherer())
                self._callers.rest(connection, now_ms)
                # Most callers call at once.
                self._go_on(connection, connection.receive(), now_ms)
            if self._acceptor.full and len(self._callers):
                self._callers.shrink()
            elif accepted is None:
                room = room and not self._acceptor.full
                break
        self._accept_ms = math.inf if room else now_ms + PAUSE_MS
        if room != self._listens:
            self._listens = room
            if room:
                self._selector.register(self._acceptor.listener, selectors.EVENT_READ)
            else:
                self._selector.unregister(self._acceptor.listener)

    def _make_room(self, now_ms: float) -> bool:
        """See that there may be another connection."""
        for _ in range(ACCEPTS_MAX):
            # Nobody goes for nobody.
            if self._callers.has_room or not self._acceptor.is_knocked():
                return True
            caller = self._callers.to_make_room(now_ms)
            if caller is None:
                break
            if caller.may_go():
                caller.reason = ""
                self._hang_up(caller)
            else:
                self._attend(caller)
        self._log.warning(
            "%s has %d connections, all in use", self._whose, self._callers.bounds.connections_max
        )
        return False

    def _drain(self) -> None:
        """Hang up on those that wait for no answer; see whether any are left."""
        if self._listens:
            self._listens = False
            self._selector.unregister(self._acceptor.listener)
        self._accept_ms = math.inf
        for caller in self._callers.waited_for():
            if caller.unsent is None:
                caller.reason = ""
                self._hang_up(caller)
        if not len(self._callers):
            with self._lock:
                self._drained = True
                self._quiet.notify_all()


def _busy(why: str) -> BufferFullError:
    return BufferFullError("the server has no room for the call now; call again", reason=why)
