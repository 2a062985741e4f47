"""The list of available hubs, in an event loop."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from hqueue.errors import HQueueError
from hqueue.metadata import Address, Watch
from hqueue.metadata.managers import AvailableHub, HubInfo
from hqueue.metadata.managers import HubRegistration as BlockingRegistration
from hqueue.metadata.managers import Hubs as BlockingHubs
from hqueue.metadata.managers.hubs import OnFailure, ignore_failure

__all__ = ["HubRegistration", "Hubs"]


class HubRegistration:
    """The registration of a hub, which is available until the registration is closed. Like
    `hqueue.metadata.managers.HubRegistration`. Made by `Hubs.register`.

    Args:
        registration: the underlying registration.
        tasks: returns the loop's tasks, which run to their end even if a caller is cancelled.
    """

    def __init__(self, registration: BlockingRegistration, tasks: Callable[[], Any]) -> None:
        self._tasks = tasks
        self.info = registration.info
        """The hub."""
        self._registration = registration

    @property
    def failure(self) -> HQueueError | None:
        """The error that prevented registering the hub again, so that it is not available any more;
        None if there is none.
        """
        return self._registration.failure

    async def update(self, load: int) -> None:
        """Update the hub's load in its record. If the caller is cancelled, it may be updated, now
        or in a moment: call it again.
        """
        await self._tasks().run(self._registration.update.in_loop(load))

    async def close(self) -> None:
        """Unregister the hub. Raises only `asyncio.CancelledError`: if the caller is cancelled, the
        hub is unregistered in the background.
        """
        await self._tasks().run(self._registration.close.in_loop())


class Hubs:
    """The available hubs of a queue, for event loops. Like `hqueue.metadata.managers.Hubs`.

    The event loop in which `register` and `watch` are called calls the callbacks. They are plain
    functions, and must not block; what they raise is logged. After the loop was closed they are not
    called any more.

    Args:
        here: returns the running loop's list.
        tasks: returns the loop's tasks, which run to their end even if a caller is cancelled.
    """

    def __init__(self, here: Callable[[], BlockingHubs], tasks: Callable[[], Any]) -> None:
        self._here = here
        self._tasks = tasks

    async def register(
        self, hub: HubInfo, load: int = 0, on_failure: OnFailure = ignore_failure
    ) -> HubRegistration:
        """Register a hub as available, and again after each loss of the session, until the
        registration is closed. Like `Hubs.register` of `hqueue.metadata.managers`. The
        registration outlives the event loop, but after the loop's end it is not restored when the
        session is lost. If the caller is cancelled, the registration is closed in the background.
        """
        hubs = self._here()
        made = await self._tasks().made(
            lambda _: hubs.register.in_loop(hub, load, on_failure),
            lambda registration: registration.close.in_loop(),
        )
        return HubRegistration(made, self._tasks)

    async def list(self) -> Mapping[Address, AvailableHub]:
        """The available hubs, by address. A hub whose record can't be read is left out and
        logged.
        """
        return await self._here().list.in_loop()

    def watch(self, listener: Callable[[Mapping[Address, AvailableHub]], None]) -> Watch:
        """Report the available hubs to a listener, when they are first known and after each change,
        until the watch is closed.
        """
        return self._here().watch(listener)

    async def is_available(self, hub: HubInfo) -> bool:
        """Whether this incarnation of a hub is available at a moment after the call began. Like
        `Hubs.is_available` of `hqueue.metadata.managers`.
        """
        return await self._here().is_available.in_loop(hub)

    async def drop(self, address: Address) -> bool:
        """Delete the record of a hub that does not come back. Returns False if the hub is
        available: then the record stays. If the caller is cancelled, the record may have been
        deleted: the call can be repeated.
        """
        return await self._here().drop.in_loop(address)

    async def drop_gone(self) -> None:
        """Delete the records of all hubs that are not available. If the caller is cancelled, some
        may have been deleted: the call can be repeated.
        """
        await self._here().drop_gone.in_loop()
