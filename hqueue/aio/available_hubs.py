"""The list of available hubs, in an event loop."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from hqueue.aio.in_threads import called_here, made
from hqueue.errors import HQueueError
from hqueue.metadata import Address, Watch
from hqueue.metadata.managers import AvailableHub, HubInfo
from hqueue.metadata.managers import HubRegistration as BlockingRegistration
from hqueue.metadata.managers import Hubs as BlockingHubs
from hqueue.metadata.managers.hubs import OnFailure, ignore_failure
from hqueue.runtime.loop import in_thread

__all__ = ["HubRegistration", "Hubs"]


class HubRegistration:
    """The registration of a hub, which is available until the registration is closed. Like
    `hqueue.metadata.managers.HubRegistration`. Made by `Hubs.register`.
    """

    def __init__(self, registration: BlockingRegistration) -> None:
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
        await in_thread(self._registration.update, load)

    async def close(self) -> None:
        """Unregister the hub. Raises nothing of its own. If the caller is cancelled, the hub may
        stay registered: call it again.
        """
        await in_thread(self._registration.close)


class Hubs:
    """The available hubs of a queue, for event loops. Like `hqueue.metadata.managers.Hubs`.

    The event loop in which `register` and `watch` are called calls the callbacks. They are plain
    functions, and must not block; what they raise is logged. After the loop was closed they are not
    called any more.

    Args:
        hubs: the list below.
    """

    def __init__(self, hubs: BlockingHubs) -> None:
        self._hubs = hubs

    async def register(
        self, hub: HubInfo, load: int = 0, on_failure: OnFailure = ignore_failure
    ) -> HubRegistration:
        """Register a hub as available, and again after each loss of the session, until the
        registration is closed: the end of the event loop does not end it. Like `Hubs.register` of
        `hqueue.metadata.managers`. If the caller is cancelled, the registration is closed in the
        background.
        """
        listener = called_here("a listener of a registration's failure", on_failure)
        return HubRegistration(
            await made(lambda: self._hubs.register(hub, load, listener), BlockingRegistration.close)
        )

    async def list(self) -> Mapping[Address, AvailableHub]:
        """The available hubs, by address. A hub whose record can't be read is left out and
        logged.
        """
        return await self._hubs.list.in_loop()

    def watch(self, listener: Callable[[Mapping[Address, AvailableHub]], None]) -> Watch:
        """Report the available hubs to a listener, when they are first known and after each change,
        until the watch is closed.
        """
        return self._hubs.watch(called_here("a listener of available hubs", listener))

    async def is_available(self, hub: HubInfo) -> bool:
        """Whether this incarnation of a hub is available at a moment after the call began. Like
        `Hubs.is_available` of `hqueue.metadata.managers`.
        """
        return await self._hubs.is_available.in_loop(hub)

    async def drop(self, address: Address) -> bool:
        """Delete the record of a hub that does not come back. Returns False if the hub is
        available: then the record stays. If the caller is cancelled, it may be deleted: the call
        can be repeated.
        """
        return await self._hubs.drop.in_loop(address)

    async def drop_gone(self) -> None:
        """Delete the records of all hubs that are not available. If the caller is cancelled, some
        of them may be deleted: the call can be repeated.
        """
        await self._hubs.drop_gone.in_loop()
