"""The two faces of what is asked of servers: for threads that block, and for an event loop.

What is asked is written once, as work. Which face an object has is said by the servers that it is
made with: `Servers` carry work out in the caller's thread, and `AsyncServers` in the running loop.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, overload

from hqueue.hbase.native.async_servers import AsyncServers
from hqueue.hbase.native.exchanges import Asking
from hqueue.hbase.native.servers import Servers

__all__ = ["Asker", "Via", "carried_out"]

Via = TypeVar("Via", bound="Servers | AsyncServers")
Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


class Asker(Generic[Via]):
    """Asks servers.

    Args:
        servers: carry out what it asks.
    """

    def __init__(self, servers: Via) -> None:
        self.servers = servers
        """They carry out what is asked."""


class carried_out(Generic[Parameters, Result]):  # noqa: N801 - a decorator.
    """A method of an `Asker` that is written as work. Called, the work is carried out: by way of
    `Servers` the call returns its result, by way of `AsyncServers` a coroutine of it.
    """

    def __init__(self, work: Callable[Concatenate[Any, Parameters], Asking[Result]]) -> None:
        self._work = work
        self.__doc__ = work.__doc__

    @overload
    def __get__(self, asker: Asker[Servers], kind: Any) -> Callable[Parameters, Result]: ...
    @overload
    def __get__(
        self, asker: Asker[AsyncServers], kind: Any
    ) -> Callable[Parameters, Coroutine[Any, Any, Result]]: ...
    def __get__(self, asker: Asker[Any], kind: Any) -> Callable[Parameters, Any]:
        work, carry_out = self._work, asker.servers.carry_out

        def call(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Any:
            return carry_out(work(asker, *args, **kwargs))

        return call
