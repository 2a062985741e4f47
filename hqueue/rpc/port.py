"""A port that is served: its callers are waited for together, by an event loop."""

from __future__ import annotations

import asyncio
import collections
import math
import selectors
import socket
import threading
from collections.abc import Callable, Iterable, Sequence

from hqueue.errors import BufferFullError, HQueueError, NotAllowedError
from hqueue.net.guard import PortGuard
from hqueue.net.open_ports import say_open, say_optional
from hqueue.net.peers import address_text
from hqueue.net.quotas import PortQuotas
from hqueue.rpc.accepting import FILE_ROOM, Entrance
from hqueue.rpc.admission import LIGHT_BYTES, Admission
from hqueue.rpc.callers import Bounds, Callers
from hqueue.rpc.gathering import Gatherer, Request
from hqueue.rpc.handshakes import Handshakes
from hqueue.rpc.muting import Muting
from hqueue.rpc.served_connection import ServedConnection
from hqueue.rpc.turns import Turns
from hqueue.runtime.alarm import needed_loop
from hqueue.runtime.clock import SYSTEM_CLOCK, Deadline
from hqueue.runtime.fork import register
from hqueue.runtime.logs import Log
from hqueue.runtime.seldom import SeldomLog
from hqueue.runtime.waiting import Condition

__all__ = ["Port"]

logger = Log(__name__)

END_S = 10.0
"""How long the last turn may take to come."""
LOOKS = 8
"""How often it is looked who has had their time, in that time."""
LOOK_MS_MAX = 1_000.0
TURN_MS = 5.0
"""In each turn, requests are gathered for about this long."""


class Port:
    """Accepts connections, gathers whole requests, has them served, and sends what a caller does
    not take at once of its answer.

    It waits for nothing. Its callers' sockets are watched together, as one file: when anything
    comes of any, or it is time, it takes a turn in the event loop that serves it, which is bounded
    however many callers there are and whatever they send. Those that have sent least come first.

    A connection is the port's until its request is given to `serve`; then that one's, until it is
    given back. A forked child has none of it.

    With a guard, callers speak TLS, and prove who they are before anything else is read of them. A
    handshake takes as long as a call that has begun may; those who called before go first. If TLS
    is optional there, the first byte says who speaks it, and must come in that time.

    With quotas, a caller that has used up its own is refused before its call is decoded, and is
    asked to come back later. Until then nothing is received from the connection: a caller that does
    not obey waits, without a thread, and with no more memory than for what has come.

    Args:
        listeners: sockets that listen. They are the port's from now on.
        bounds: of the port. The process's limit on open files may allow fewer connections.
        whose: what the log calls it.
        make_gatherer: of each connection.
        serve: called in a turn with a connection whose `request` has come, or whose `step` must be
            taken.
        refuse: makes the answer to a call that is not served, of its first bytes and why; empty if
            there can be none.
        memory_bytes_max: of all requests that are served, for those that are not light: if several
            are, together. Others wait.
        guard: who may call, and how they prove who they are; everybody may if None.
        quotas: what callers may ask for in a second; without bounds if None.
        never_refuses: whether a call, by its first bytes, is served to callers over their quota,
            too. They are muted after that.
    """

    def __init__(
        self,
        listeners: Sequence[socket.socket],
        bounds: Bounds,
        whose: str,
        *,
        make_gatherer: Callable[[], Gatherer],
        serve: Callable[[ServedConnection], object],
        refuse: Callable[[bytes, HQueueError], bytes] = lambda begun, error: b"",
        memory_bytes_max: float = math.inf,
        guard: PortGuard | None = None,
        quotas: PortQuotas | None = None,
        never_refuses: Callable[[bytes], bool] = lambda begun: False,
    ) -> None:
        if guard is None:
            say_open(whose, listeners)
        elif guard.optional:
            say_optional(whose, listeners)
        self._muting = Muting(quotas, never_refuses)
        self._accepts = True
        """Whether connections are accepted though a handshake went on in the same turn."""
        self._selector = selectors.DefaultSelector()
        self._entrance = Entrance(
            listeners,
            whose,
            bounds,
            self._selector,
            add=self.add,
            let_go=self._let_go,
            turn_ms=TURN_MS if guard is None else 0.0,
        )
        self.callers: Callers[ServedConnection] = Callers(self._entrance.bounds)
        self._handshakes = None if guard is None else Handshakes(guard, self.callers)
        self._make_gatherer = make_gatherer
        self._serve = serve
        self._refuse = refuse
        self._whose = whose
        self._look_every_ms = min(
            LOOK_MS_MAX, bounds.still_ms_max / LOOKS, bounds.idle_ms_max / LOOKS
        )
        self._look_ms = 0.0
        self._log = SeldomLog(logger)
        self._hellos = SeldomLog(logger)
        self._make_lock()
        self._back: collections.deque[ServedConnection] = collections.deque()
        """Served, and the port's again."""
        self._turns = Turns(self.turn)
        self._admission = Admission(memory_bytes_max, self._turns.call_for_one)
        self.release = self._admission.release
        """What was made of a connection's request is needed no more. From any thread, and more than
        once."""
        self.closing = False
        """Whether no further request is served."""
        self._drained = self._ended = self._over = False
        self._quiet_here: asyncio.Future[None] | None = None
        """Done when all is drained, or over: what `close_here` waits for."""
        register(self)

    def after_fork_in_child(self) -> None:
        # Kept open here, the port would stay taken after the parent's end.
        self._entrance.close()
        for connection in self.callers:
            connection.sock.close()
        self._make_lock()
        self.closing = self._over = True  # What watched it is the parent's.

    def _make_lock(self) -> None:
        self._lock = threading.RLock()
        self._quiet = Condition(self._lock)

    def fileno(self) -> int:
        """The one file that is watched: it can be read when anything has come of anybody."""
        return self._selector.fileno()

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._entrance.listeners[0].getsockname()[1])

    def start(self) -> None:
        """Serve it from now on in the process's loop.

        Raises:
            ClosedError: the interpreter is ending.
            HQueueError: the system starts no more threads for now.
        """
        needed_loop().call(self.start_here)

    def start_here(self) -> None:
        """Serve it from now on in the event loop that runs."""
        with self._lock:
            if self._over:
                return
            # Its selector is one file to the loop's: so it is the port's own turn, and not the
            # loop's, that says whose requests are gathered, and for how long.
            self._turns.begin(self.fileno())

    def add(self, sock: socket.socket, peer: object) -> None:
        """Take in a connection. In the thread that serves the port."""
        if self._handshakes is not None:
            try:
                connection = self._handshakes.begin(sock, peer, self._make_gatherer())
            except OSError:  # It has gone already.
                sock.close()
            else:
                self._shake(connection)
            return
        connection = ServedConnection(sock, peer, self._make_gatherer())
        self._muting.open_account(connection)
        self.callers.mark_idle(connection, SYSTEM_CLOCK.monotonic_ms())
        # Most callers call at once.
        self._go_on(connection, connection.receive(), SYSTEM_CLOCK.monotonic_ms())

    def give_back(self, connection: ServedConnection) -> None:
        """Its request was answered, by what was sent and is `unsent`; or there is a `reason` to
        hang up, another `request` to serve, or a `step` to take. From any thread.
        """
        # Another call waits for a turn: served here, those that came together would each be served
        # within the one before.
        is_next = connection.step is not None and self._turns.under_way
        if self.closing or not self._turns.begun or connection.request is not None or is_next:
            self._back.append(connection)
            self._turns.call_for_one()
        elif self._turns.is_here:
            self._see_to(connection, self._take_back)
        else:
            self._turns.call(self.give_back, connection)

    @property
    def memory_bytes(self) -> int:
        """What requests that are not light have of the memory. From any thread."""
        return self._admission.bytes

    def admits(self, connection: ServedConnection) -> bool:
        """Whether the one that has just answered a caller may serve its next request, too: it is
        light, or there is the memory for it and nobody waits for that.
        """
        request = connection.request
        if connection.account is not None:
            return False  # Its quota is looked at in a turn.
        if request is None or request.weight <= LIGHT_BYTES:
            return request is not None
        return not self.callers.has_queued and self._admission.take(connection, request.weight)

    def close(self, drain_ms: float = 0.0) -> bool:
        """Accept no more, have the requests under way answered, and hang up. Returns whether all
        were answered in time. In the thread that serves the port nothing is waited for.
        """
        deadline = Deadline(SYSTEM_CLOCK, drain_ms)
        with self._lock:
            self.closing = True
            if self._turns.begun and not self._over and not self._turns.is_here:
                self._turns.call_for_one()
                self._quiet.wait_for(
                    lambda: self._drained or self._over, deadline.remaining_ms / 1e3
                )
                self._ended = True
                self._turns.call_for_one()
                if not self._quiet.wait_for(lambda: self._over, END_S):
                    return False  # What it holds is its own still.
        self._end()
        return self._drained

    async def close_here(self, drain_ms: float) -> bool:
        """Like `close`, in the event loop that serves the port, and waits there."""
        self.closing = True
        try:
            if self._turns.begun and not self._over:
                self._quiet_here = asyncio.get_running_loop().create_future()
                self._turns.call_for_one()
                await asyncio.wait([self._quiet_here], timeout=drain_ms / 1e3)
        finally:
            self._end()
        return self._drained

    def abandon(self) -> None:
        """Hang up on all callers. The loop that served the port was closed."""
        self._end()

    def turn(self) -> float:
        """Do what must be done now, and for a while; how long nothing will be from then on, unless
        something comes: in seconds, below 0 if all is over.
        """
        ready, steps = self._selector.select(0), self._handshake_steps
        # What calls for more than there is, is called for again at the next turn.
        for connection in self._those_ready(ready):
            self._see_to(connection, self._attend)
        self._turns.called_for = False
        closing = self.closing
        if self._ended:
            self._end()
            return -1.0
        now_ms = SYSTEM_CLOCK.monotonic_ms()
        for _ in range(len(self._back)):
            self._see_to(self._back.popleft(), self._take_back)
        self._admit_queued()
        for connection in self._muting.due(now_ms):
            self._see_to(connection, self._unmute)
        if now_ms >= self._look_ms:
            self._look_ms = now_ms + self._look_every_ms
            self._end_overdue(now_ms)
            self.callers.grow()
            self._admission.trim(now_ms)
        if closing:
            self._drain()
        elif now_ms >= self._entrance.due_ms:
            # An accepted connection begins its handshake: in a turn of its own, if others wait.
            self._accepts = self._accepts or self._handshake_steps == steps
            if self._accepts:
                self._entrance.accept(self.callers, now_ms)
            self._accepts = not self._accepts
        if self._turns.called_for:
            return 0.0
        due_ms = min(self._look_ms, self._entrance.due_ms, self._muting.due_ms)
        return max(0.0, due_ms - now_ms) / 1e3

    @property
    def _handshake_steps(self) -> int:
        return 0 if self._handshakes is None else self._handshakes.steps

    def _end(self) -> None:
        """Hang up on all, and be over."""
        with self._lock:
            if self._over:
                return
            self._over = True
            self._turns.end()
            for connection in self.callers:
                connection.close()
            self._entrance.close()
            FILE_ROOM.give_back(self._entrance.file_room)
            self._selector.close()
            self._notify_quiet()

    def _notify_quiet(self) -> None:
        self._quiet.notify_all()
        quiet = self._quiet_here
        if (
            quiet is not None
            and not quiet.done()
            and quiet.get_loop() is asyncio._get_running_loop()
        ):
            quiet.set_result(None)  # Elsewhere that loop was closed.

    def _those_ready(
        self, events: list[tuple[selectors.SelectorKey, int]]
    ) -> Iterable[ServedConnection]:
        """Connections that bytes have come from, or that go on to read: first those with the fewest
        bytes so far, for as long as a turn takes, and then the one that began first. Strangers come
        last: one handshake goes on in a turn, so that callers that have their connections wait for
        no crowd of new ones.
        """
        found: list[ServedConnection] = []
        for key, _ in events:
            if key.data is not None:
                found.append(key.data)
            else:
                self._entrance.due_ms = 0.0
        if len(found) < 2:
            yield from found
            return
        found.sort(
            key=lambda each: (each.shaking, each.began_ms if each.shaking else each.passed_bytes)
        )
        ends_ms = SYSTEM_CLOCK.monotonic_ms() + TURN_MS
        for at, connection in enumerate(found):
            is_stranger = connection.shaking
            yield connection
            if is_stranger:
                return
            if SYSTEM_CLOCK.monotonic_ms() > ends_ms:
                left = [each for each in found[at + 1 :] if each.events]
                if left:
                    yield min(left, key=lambda each: each.began_ms)
                return

    def _see_to(
        self, connection: ServedConnection, step: Callable[[ServedConnection], object]
    ) -> None:
        """Go on with a connection. No fault in that is another one's, or ends the loop."""
        try:
            step(connection)
        except BaseException as exc:
            self.release(connection)
            connection.reason = f"{type(exc).__name__}: {exc}"
            self._hang_up(connection)

    def _attend(self, connection: ServedConnection) -> None:
        """Receive what has come of a connection, or send on what it reads."""
        if not connection.events:  # It was hung up on in this turn.
            return
        if not self.callers.awaits(connection):  # It is served, and sends more before its answer.
            self._watch_for(connection, 0)
            return
        if connection.leaving:
            if not connection.discard():
                connection.reason = ""
                self._hang_up(connection)
        elif connection.shaking:
            self._shake(connection)
        else:
            self._go_on_moving(connection)

    def _go_on_moving(self, connection: ServedConnection) -> None:
        now_ms = SYSTEM_CLOCK.monotonic_ms()
        if connection.unsent is None:
            self._go_on(connection, connection.receive(), now_ms)
            return
        connection.send(connection.unsent)
        if connection.unsent is not None and connection.reason is None:
            self.callers.move(connection, connection.held, now_ms)
            return
        connection.passed_bytes = 0
        if connection.last:
            self._bid_farewell(connection, b"")
            return
        self.callers.mark_idle(connection, now_ms)
        self._go_on(connection, connection.gathered(), now_ms)

    def _shake(self, connection: ServedConnection) -> None:
        """Go on with a handshake."""
        assert self._handshakes is not None
        try:
            events = self._handshakes.step(connection)
        except ConnectionError:
            self._watch_for(connection, 0)
            self._drop(connection)
            return
        except OSError:
            # It learns why, though it may have sent a call already, which nobody reads.
            self._watch_for(connection, 0)
            self._bid_farewell(connection, b"")
            return
        if events:
            self._watch_for(connection, events)
            self._end_surplus()
            return
        if connection.principal is not None:
            self._muting.open_account(connection)
        now_ms = SYSTEM_CLOCK.monotonic_ms()
        self.callers.mark_idle(connection, now_ms)
        self._go_on(connection, connection.receive(), now_ms)

    def _note_refusal(self, connection: ServedConnection, kind: str, reason: str) -> None:
        assert self._handshakes is not None
        self._handshakes.refuse(connection, kind, reason)

    def _go_on(self, connection: ServedConnection, request: Request | None, now_ms: float) -> None:
        """What follows when something has come of a connection, or it was answered."""
        if connection.reason is not None:
            self._hang_up(connection)
            return
        if request is not None:
            self._admit(connection, request)
            return
        self._watch_for(connection, 0 if connection.muted_until_ms else selectors.EVENT_READ)
        if connection.muted_until_ms:
            self._muting.add(connection)
            if not self._turns.under_way:
                self._turns.call_for_one()  # It looks when the next one is due.
        if held := connection.gatherer.held:
            if connection.held:
                self.callers.move(connection, held, now_ms)
            else:
                self.callers.begin(connection, held, now_ms)
            self._end_surplus()
        else:
            self.callers.mark_idle(connection, now_ms)

    def _unmute(self, connection: ServedConnection) -> None:
        """Receive from a connection again."""
        connection.muted_until_ms = 0.0
        if connection.among is not None and not connection.leaving:
            now_ms = SYSTEM_CLOCK.monotonic_ms()
            self._go_on(connection, connection.gathered(), now_ms)

    def _take_back(self, connection: ServedConnection) -> None:
        """What serves is done with a connection, or its answer goes on."""
        if connection.step is not None:
            self._serve(connection)
            return
        now_ms = SYSTEM_CLOCK.monotonic_ms()
        if connection.unsent is not None and connection.reason is None:
            held = len(connection.unsent.obj)  # type: ignore[arg-type]
            self.callers.begin(connection, held, now_ms)
            self._watch_for(connection, selectors.EVENT_WRITE)
            self._end_surplus()
            return
        if connection.last and connection.reason is None:
            self._bid_farewell(connection, b"")
            return
        request, connection.request = connection.request, None
        self._go_on(connection, request, now_ms)

    def _admit(self, connection: ServedConnection, request: Request) -> None:
        """Have a request served, once there is the memory for it."""
        if self.closing:
            self._hang_up(connection)
            return
        if connection.forbidden is not None:
            self._forbid(connection, request, connection.forbidden)
            return
        connection.request = request
        connection.passed_bytes = 0
        error = self._muting.refusal_of(connection, request)
        if error is not None:
            self._answer_unserved(connection, error, error.text)
            return
        if request.weight > LIGHT_BYTES:
            waits = self.callers.first_queued is not None
            if waits or not self._admission.take(connection, request.weight):
                held = len(request.data) or request.weight
                if self.callers.queue(connection, held, SYSTEM_CLOCK.monotonic_ms()):
                    self._end_surplus()
                else:
                    self._put_off(connection, "as many large calls wait for their turn as may")
                return
        self.callers.serve(connection)
        self._serve(connection)

    def _admit_queued(self) -> None:
        """Have those served for whose requests there is memory now, in their order."""
        while (connection := self.callers.first_queued) is not None:
            assert connection.request is not None
            if connection.has_left():  # Nobody would read the answer.
                connection.reason = ""
                self._hang_up(connection)
                continue
            if not self._admission.take(connection, connection.request.weight):
                return
            self.callers.serve(connection)
            self._see_to(connection, self._serve)

    def _put_off(self, connection: ServedConnection, why: str) -> None:
        """Have a caller call again later, with a whole request that is not served now."""
        caller = address_text(connection.peer)
        self._log.warning("asked %s to call again later: %s", caller, why)
        self._answer_unserved(connection, _busy(why), why)

    def _answer_unserved(self, connection: ServedConnection, error: HQueueError, why: str) -> None:
        """Answer a whole request that is not served; hang up if it can get no answer."""
        request, connection.request = connection.request, None
        assert request is not None
        answer = self._refuse(request.begun, error)
        if not answer:
            connection.reason = why
        self.callers.serve(connection)
        if answer:
            connection.send(answer)
            if connection.unsent is None and connection.reason is None:
                connection.passed_bytes = 0
                connection.request = connection.gathered()
        self.give_back(connection)

    def _forbid(
        self, connection: ServedConnection, request: Request, error: NotAllowedError
    ) -> None:
        """Say to a caller that it has no right to call, and hang up."""
        kind = "handshake" if connection.principal is None else "principal"
        self._note_refusal(connection, kind, str(error))
        answer = self._refuse(request.begun, error)
        self._watch_for(connection, 0)
        if answer:
            self._bid_farewell(connection, answer)
        else:
            self._drop(connection)

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
        if connection.shaking and not self.closing:
            self._note_refusal(connection, "handshake", connection.reason or "it did not go on")
        elif connection.greets_by_tls:
            self._hellos.info(
                "a caller at %s speaks TLS, and this port does not: with tls_optional it "
                "calls again without; otherwise set tls here",
                address_text(connection.peer),
            )
        elif connection.reason:
            caller = address_text(connection.peer)
            self._log.warning("closed the connection from %s: %s", caller, connection.reason)
        self._watch_for(connection, 0)
        if connection.account is not None:
            connection.account.received(connection.gatherer.held)
        refusal, connection.refusal = connection.refusal, None
        connection.request = connection.unsent = None
        answer = self._refuse(connection.gatherer.begun, refusal) if refusal else b""
        if answer:
            self._bid_farewell(connection, answer)
        else:
            self._drop(connection)

    def _bid_farewell(self, connection: ServedConnection, answer: bytes) -> None:
        """Send a last answer, and take nothing more but for its reader to come to its end."""
        if not connection.leave(answer):
            self._drop(connection)
            return
        connection.gatherer = self._make_gatherer()
        self.callers.leave(connection, SYSTEM_CLOCK.monotonic_ms())
        self._watch_for(connection, selectors.EVENT_READ)

    def _drop(self, connection: ServedConnection) -> None:
        self._watch_for(connection, 0)
        self.callers.drop(connection)
        connection.close(abort=bool(connection.reason))

    def _end_surplus(self) -> None:
        for caller in self.callers.surplus():
            caller.reason = "all callers together hold as much memory as they may"
            if caller.unsent is None:
                caller.refusal = _busy(caller.reason)
            self._hang_up(caller)

    def _end_overdue(self, now_ms: float) -> None:
        for caller in self.callers.not_served(now_ms):
            self._put_off(caller, "other large calls took all of the time that it may wait")
        for caller, reason in self.callers.overdue(now_ms):
            if caller.may_go():
                caller.reason = reason
                self._hang_up(caller)

    def _let_go(self, connection: ServedConnection) -> None:
        """Hang up on one for a further one, unless it has just made a call."""
        if connection.may_go():
            connection.reason = ""
            self._hang_up(connection)
        else:
            self._attend(connection)

    def _drain(self) -> None:
        """Hang up on those that wait for no answer; see whether any are left."""
        self._entrance.stop()
        for caller in self.callers.waited_for():
            if caller.unsent is None:
                caller.reason = ""
                self._hang_up(caller)
        if not len(self.callers):
            with self._lock:
                self._drained = True
                self._notify_quiet()


def _busy(why: str) -> BufferFullError:
    return BufferFullError("the server has no room for the call now; call again", reason=why)
