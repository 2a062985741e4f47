"""A metadata store by its face for event loops, behind the blocking one's: so what is promised of
both is tested by the same tests.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from hqueue.metadata.ports import MetadataStore
from hqueue.runtime.alarm import needed_loop

__all__ = ["LoopedStore"]

ANSWER_S = 120


class _Call(NamedTuple):
    """Asks for a call of any of the store's methods."""

    port: str
    name: str
    args: tuple[Any, ...]
    named: dict[str, Any]

    def do(self, store: Any) -> object:
        port = getattr(store, self.port) if self.port else store
        return getattr(port, self.name)(*self.args, **self.named)


class _Looped:
    """The methods of a store's records, or of its registrations."""

    def __init__(self, store: MetadataStore, port: str) -> None:
        self._store = store
        self._port = port

    def __getattr__(self, name: str) -> Any:
        def call(*args: Any, **named: Any) -> Any:
            step = _Call(self._port, name, args, named)
            return needed_loop().start(self._store.answer, step).result(ANSWER_S)

        return call


class LoopedStore:
    """Has each request made in the process's loop. What is no request is the store's own.

    Args:
        store: the store.
    """

    def __init__(self, store: MetadataStore) -> None:
        self.store = store
        self.records = _Looped(store, "records")
        self.ephemerals = _Looped(store, "ephemerals")
        self.confirm = _Looped(store, "").confirm

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)
