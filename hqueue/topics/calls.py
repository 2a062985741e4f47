"""Calls hubs: finds the hub that owns a topic, and remembers it."""

from __future__ import annotations

import collections
import random
import threading
from typing import Any

from hqueue.errors import (
    ClosedError,
    HubUnavailableError,
    InvalidInputError,
    NotAllowedError,
    Outcome,
    QueueNotFoundError,
    SubscriberExistsError,
    SubscriberNotFoundError,
)
from hqueue.net.contexts import TlsContexts
from hqueue.net.guard import PortGuard
from hqueue.net.refusals import RefusedError, refusal_of
from hqueue.net.security import security_of
from hqueue.rpc.calls import NoCallError
from hqueue.rpc.connection import ThriftError, is_another_service
from hqueue.rpc.pool import NotConnectedError
from hqueue.rpc.services import load
from hqueue.runtime.backoff import Backoff
from hqueue.runtime.clock import Clock, Deadline, Tries, do_step, do_step_in_loop
from hqueue.runtime.fork import register
from hqueue.runtime.interrupts import is_interruption
from hqueue.runtime.steps import Pause, Work
from hqueue.runtime.stepwise import Stepwise, stepwise
from hqueue.settings.addresses import Address
from hqueue.topics.connections import HubConnections
from hqueue.topics.exchanges import Exchange, HubMethod, Watch
from hqueue.topics.loop_connections import LoopHubConnections
from hqueue.topics.settings import HubClientSettings
from hqueue.topics.silence import SilentHubs, share_ms
from hqueue.topics.structs import text_of

__all__ = ["OVER_QUOTA", "HubCalls", "not_accepted"]

RETRIES = Backoff(20.0, 500.0, spread=(0.5, 1.5))
"""Between two tries. The topics of a hub that died are another's within the longest one."""

REASON_LENGTH_MAX = 200

OVER_QUOTA = "the caller is over its quota at the hub for longer than operation_timeout_ms"

NOT_A_HUB = (
    "what listens at this address is not a hub: it does not know the call, and did nothing; give "
    "the hub's own port, not that of its Thrift API, of its metrics or of another server"
)


def not_accepted(refusal: RefusedError, **facts: object) -> NotAllowedError:
    """The error if a hub and a client do not accept each other. Nothing was done."""
    error = NotAllowedError(refusal.text)
    error.facts.update(facts, **refusal.facts)
    return error


class HubCalls(Stepwise):
    """Calls hubs: follows redirects, tries again what was refused for the moment, and remembers
    which hub owns a topic. Thread-safe, and usable in any number of event loops; a forked child
    opens connections of its own.

    Args:
        settings: where hubs are, and bounds.
        clock: where time comes from.
    """

    def __init__(self, settings: HubClientSettings, clock: Clock) -> None:
        self.settings = settings
        self._clock = clock
        self._idl = load("hub")
        self._refusals = tuple(
            kind
            for name, kind in vars(self._idl).items()
            if name.startswith("T") and isinstance(kind, type) and issubclass(kind, Exception)
        )
        self.security = security_of(settings)
        """Secures ports and calls; None if they are open."""
        called = self._idl.HQueueHubService, self._refusals, settings, self.tls
        self._connections = HubConnections(*called)
        self._loop_connections = LoopHubConnections(*called)
        self.silent = SilentHubs(clock)
        """The hubs that do not answer."""
        self._owners: collections.OrderedDict[tuple[str, str], Address] = collections.OrderedDict()
        self._closed = False
        self.after_fork_in_child()
        register(self)

    def after_fork_in_child(self) -> None:
        self._lock = threading.RLock()
        self._random = random.Random()

    @property
    def tls(self) -> TlsContexts | None:
        """The TLS contexts for calls; None for calls without TLS."""
        return None if self.security is None else self.security.client

    def delivery_guard(self) -> PortGuard | None:
        """Guards a port to which hubs deliver messages; None if it is open.

        Raises:
            SettingsError: the settings don't say who the hubs are.
        """
        return None if self.security is None else self.security.delivery_guard()

    @property
    def closed(self) -> bool:
        """Whether calls are refused."""
        return self._closed

    def check_open(self) -> None:
        """Raise a `ClosedError` if it was closed."""
        if self._closed:
            raise ClosedError("the client was closed")

    def close(self) -> None:
        """Close all connections. Calls under way are answered; further ones are refused."""
        self._closed = True
        self._connections.close()
        self._loop_connections.close()

    @stepwise
    def call(
        self,
        queue: str,
        topic: str,
        method: HubMethod,
        *,
        timeout_ms: float | None = None,
        repeatable: bool = False,
    ) -> Work[Any, tuple[Any, Address]]:
        """Call hubs until one has carried out the call. Returns its answer and its address.

        Args:
            queue: the queue.
            topic: the topic.
            method: the method to call. Its last argument says whether the call was redirected.
            timeout_ms: the bound on all tries; ``operation_timeout_ms`` if None.
            repeatable: whether the call can be repeated when its outcome is unknown.

        Raises:
            HubUnavailableError: no hub carried out the call in time.
            NotAllowedError: the caller may not, or a hub and the client do not accept each other.
            HQueueError: otherwise, as the IDL's error says.
        """
        self.check_open()
        bound_ms = self.settings.operation_timeout_ms if timeout_ms is None else timeout_ms
        deadline, tries = Deadline(self._clock, bound_ms), Tries()
        try:
            noted = tries if repeatable else None
            return (yield from self._call((queue, topic), method, deadline, noted))
        except (HubUnavailableError, NotAllowedError, QueueNotFoundError, ClosedError) as exc:
            tries.conclude(exc)  # Of a try before this one, none of them is the answer.
            raise

    def _call(
        self, key: tuple[str, str], method: HubMethod, deadline: Deadline, tries: Tries | None
    ) -> Work[Any, tuple[Any, Address]]:
        """The same within a deadline; `tries` are noted if the call is repeatable."""
        queue, topic = key
        pauses = RETRIES.pauses()
        last: Exception | None = None
        while True:
            hub, redirected = self._owners.get(key) or self._any(), False
            for _ in range(self.settings.redirects_max + 1):
                if deadline.expired and last is not None:
                    break
                share = share_ms(deadline.remaining_ms)
                if not (yield from self.silent.may_be_called(hub, share)):
                    last = _RefusedError(f"{hub}: the hub is silent")
                    break
                try:
                    made = method._replace(arguments=(*method.arguments, redirected))
                    answer = yield from self.call_one.steps(hub, queue, topic, made, deadline)
                except self._idl.TRedirect as exc:
                    last, redirected = exc, True
                    hub = Address.parse(str(Address(text_of(exc.host), exc.port)))
                    continue
                except _RefusedError as exc:
                    last = exc
                    if exc.retry_after_ms:
                        self._remember(key, hub)
                    break
                except HubUnavailableError as exc:
                    if tries is None:
                        raise
                    tries.note(exc)
                    last = exc
                    break
                self._remember(key, hub)
                return answer, hub
            retry_after_ms = last.retry_after_ms if isinstance(last, _RefusedError) else 0
            if not retry_after_ms:
                self._drop(key)
            self.check_open()
            if deadline.remaining_ms <= retry_after_ms:
                text = OVER_QUOTA if retry_after_ms else "no hub answered the call in time"
                error = HubUnavailableError(text, outcome=Outcome.NOT_APPLIED)
                error.facts.update(queue=queue, topic=topic, reason=str(last))
                if retry_after_ms:
                    error.facts["retry_after_ms"] = retry_after_ms
                raise error from last
            pause_ms = RETRIES.obey(retry_after_ms) if retry_after_ms else next(pauses)
            yield Pause(min(pause_ms, deadline.remaining_ms))

    @stepwise
    def api_address(self, hub: Address, deadline: Deadline) -> Work[Any, Address | None]:
        """Where a hub serves the Thrift API; None if it does not.

        Raises:
            Exception: the hub does not answer.
        """
        method = HubMethod("apiAddress", only_reads=True)
        found = text_of((yield from self.call_one.steps(hub, "", "", method, deadline)))
        return Address.parse(found) if found else None

    @stepwise
    def may_be_called(self, hub: Address, bound_ms: float) -> Work[Any, bool]:
        """Like `SilentHubs.may_be_called`."""
        return (yield from self.silent.may_be_called(hub, bound_ms))

    @stepwise
    def check(self, hub: Address, bound_ms: float) -> Work[Any, None]:
        """Like `SilentHubs.check`."""
        yield from self.silent.check(hub, bound_ms)

    def watch(self, hub: Address, deadline: Deadline) -> Watch:
        """Watches a call that is made of a hub, or of its process, and is bounded by a deadline."""
        silence_ms = share_ms(max(1.0, deadline.remaining_ms))
        return Watch(
            silence_ms,
            lambda: self.check.asked(hub, min(silence_ms, share_ms(deadline.remaining_ms))),
        )

    @stepwise
    def call_one(
        self, hub: Address, queue: str, topic: str, method: HubMethod, deadline: Deadline
    ) -> Work[Any, Any]:
        """One call of one hub.

        Raises:
            TRedirect: the caller must call another hub.
            Exception: nothing was done, and another try may succeed.
            HQueueError: another try is of no use.
        """
        with method.outcome():
            return (yield from self._call_one((hub, queue, topic), method, deadline))

    def _call_one(
        self, at: tuple[Address, str, str], method: HubMethod, deadline: Deadline
    ) -> Work[Any, Any]:
        hub, queue, topic = at
        try:
            return (yield Exchange(hub, method, deadline, self.watch(hub, deadline)))
        except NotConnectedError as exc:
            if isinstance(exc.__cause__, TimeoutError):
                self.silent.note(hub)
            refusal = refusal_of(exc.__cause__)
            if refusal is not None:
                raise not_accepted(refusal, hub=str(hub)) from exc.__cause__
            raise _RefusedError(f"{hub}: {exc.__cause__}") from exc.__cause__
        except self._refusals as exc:
            raise self._translated(exc, hub, queue, topic) from exc
        except (OSError, *ThriftError, EOFError, ValueError, NoCallError) as exc:
            if is_interruption(exc):
                raise
            refusal = refusal_of(exc)
            if refusal is not None:
                raise not_accepted(refusal, hub=str(hub)) from exc
            self._drop((queue, topic))
            elsewhere = is_another_service(exc)
            raise HubUnavailableError(
                NOT_A_HUB if elsewhere else method.no_answer,
                outcome=Outcome.NOT_APPLIED if elsewhere else Outcome.UNKNOWN,
                hub=str(hub),
                queue=queue,
                topic=topic,
                reason=f"{type(exc).__name__}: {exc}"[:REASON_LENGTH_MAX],
            ) from exc

    def _translated(self, error: Any, hub: Address, queue: str, topic: str) -> Exception:
        idl = self._idl
        made: Exception
        match error:
            case idl.TIllegalArgument():
                made = InvalidInputError("the hub refuses the call", reason=text_of(error.message))
            case idl.TNoSuchQueue():
                made = QueueNotFoundError(
                    "the hub does not serve that queue", queue=queue, hub=str(hub)
                )
            case idl.TNotAllowed():
                made = NotAllowedError(
                    "the caller is not allowed to do this",
                    publisher=self.settings.publisher,
                    queue=queue,
                    topic=topic,
                    reason=text_of(error.message),
                )
            case idl.TUnavailable() if error.outcome != idl.TOutcome.NOT_APPLIED:
                made = HubUnavailableError(
                    "the hub does not know the outcome of the call",
                    outcome=Outcome.UNKNOWN,
                    hub=str(hub),
                    queue=queue,
                    topic=topic,
                    reason=text_of(error.message),
                )
            case idl.TRedirect():
                made = error
            case idl.TSubscriptionExists():
                made = SubscriberExistsError(
                    "the subscription exists already", queue=queue, topic=topic
                )
            case idl.TNoSuchSubscription():
                made = SubscriberNotFoundError(
                    "there is no such subscription", queue=queue, topic=topic
                )
            case _:
                retry_after_ms = getattr(error, "retryAfterMs", None) or 0
                made = _RefusedError(f"{hub}: {text_of(error.message)}", retry_after_ms)
        return made

    def _do(self, step: Any) -> object:
        return do_step(self._connections, self._clock, step)

    async def _do_in_loop(self, step: Any) -> object:
        return await do_step_in_loop(self._loop_connections, self._clock, step)

    def _any(self) -> Address:
        return self.silent.choose(self.settings.hubs, self._random)

    def _remember(self, key: tuple[str, str], hub: Address) -> None:
        with self._lock:
            self._owners[key] = hub
            self._owners.move_to_end(key)
            for _ in range(len(self._owners) - self.settings.owners_max):
                self._owners.popitem(last=False)

    def _drop(self, key: tuple[str, str]) -> None:
        with self._lock:
            self._owners.pop(key, None)


class _RefusedError(Exception):
    """Nothing was done, and another try may succeed: after this long, if the hub says so."""

    def __init__(self, text: str, retry_after_ms: int = 0) -> None:
        super().__init__(text)
        self.retry_after_ms = retry_after_ms
