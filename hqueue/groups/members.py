"""The members of a group."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from hqueue.errors import HQueueError, RequestRefusedError, UnsupportedFormatError
from hqueue.groups.paths import GroupPaths
from hqueue.metadata import MetadataStore, Watch
from hqueue.metadata.directory import Directory
from hqueue.metadata.encoding import decode_member, encode_member, member_left
from hqueue.metadata.ports import Obstacle, Record
from hqueue.metadata.registration import Registration
from hqueue.metadata.steps import OnStore, Work
from hqueue.runtime.clock import SYSTEM_CLOCK, Clock
from hqueue.runtime.stepwise import stepwise

__all__ = ["GroupMembers"]

MEMBER_DEPTH = 1


class GroupMembers(OnStore):
    """The members of a group, and how many streams each has of each queue. Thread-safe.

    Args:
        store: where members are registered.
        paths: the group's paths.
        clock: measures how long to wait for a member that may be dead.
    """

    def __init__(
        self, store: MetadataStore, paths: GroupPaths, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        super().__init__(store, clock)
        self._paths = paths
        self._present = Directory(
            store, paths.ids, MEMBER_DEPTH, self._decode, "a member", alone=True
        )

    def registration(
        self,
        consumer: str,
        streams: Mapping[str, int],
        on_failure: Callable[[HQueueError], None],
        *,
        static: bool = False,
        shares: bool = False,
    ) -> Registration:
        """A registration that makes a consumer present from its `begin` to its `close`, and again
        after the session was lost. `begin` raises a `RequestRefusedError` if another consumer of
        that ID stays present.

        Args:
            consumer: the consumer's ID, which no other consumer has.
            streams: how many streams the consumer has of each queue, 1 to 1,000.
            on_failure: called if the consumer can't be made present again.
            static: whether the consumer takes the place of a predecessor of this ID that has left
                and kept its place (`leave_behind`). If the predecessor may still be alive, the
                registration waits as long as its session may last, and changes nothing of it.
            shares: whether the consumer is one of a share group.
        """
        return Registration(
            self._store,
            [{self._paths.member(consumer): encode_member(streams, shares=shares)}],
            is_own=_has_left if static else _is_other,
            on_obstacle=_taken,
            on_failure=on_failure,
            parents=True,
            clock=self._clock,
        )

    @stepwise
    def change(
        self, registration: Registration, consumer: str, streams: Mapping[str, int]
    ) -> Work[None]:
        """Let a member consume other queues."""
        yield from registration.replace.steps(
            {self._paths.member(consumer): encode_member(streams)}
        )

    @stepwise
    def leave_behind(
        self, registration: Registration, consumer: str, streams: Mapping[str, int]
    ) -> Work[None]:
        """Let a member that has left keep its place until its session ends, or until a successor of
        its ID takes it. Never raises.
        """
        left = encode_member(streams, left=True)
        yield from registration.leave_behind.steps({self._paths.member(consumer): left})

    @stepwise
    def list(self) -> Work[Mapping[str, Mapping[str, int]]]:
        """The streams of every member by queue. A record that can't be read is left out."""
        return (yield from self._present.list())

    @stepwise
    def everyone(self) -> Work[Mapping[str, Mapping[str, int]]]:
        """Like `list`, but includes members whose records can't be read, without streams."""
        members, unreadable = yield from self._present.inspect()
        return {**{self._paths.consumer(path): {} for path in unreadable}, **members}

    @stepwise
    def consuming(self, queue: str | None = None) -> Work[Sequence[str]]:
        """The members that consume this queue, or all members if it is None. Members whose records
        can't be read are included.
        """
        members, unreadable = yield from self._present.inspect()
        consuming = {each for each, streams in members.items() if queue in (None, *streams)}
        return sorted(consuming.union(map(self._paths.consumer, unreadable)))

    def watch(self, listener: Callable[[Mapping[str, Mapping[str, int]]], None]) -> Watch:
        """Report the members of the group, as `MetadataStore.watch` does."""
        return self._present.watch(listener)

    def _decode(self, path: str, found: Mapping[str, Record]) -> tuple[str, dict[str, int]]:
        return self._paths.consumer(path), decode_member(found[path].value, path)


def _has_left(value: bytes) -> bool:
    try:
        return member_left(value, "")
    except UnsupportedFormatError:
        return False


def _is_other(value: bytes) -> bool:
    return False


def _taken(obstacle: Obstacle) -> RequestRefusedError:
    return RequestRefusedError(
        "another consumer with this ID is in the group; stop it, or give this one an ID of its own",
        path=obstacle.key,
        record=(obstacle.value or b"").decode(errors="replace"),
    )
