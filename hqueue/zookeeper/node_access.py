"""Finds the nodes below a root that anyone may change, and closes them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from functools import partial
from types import TracebackType
from typing import Any, NamedTuple

from kazoo.exceptions import BadVersionError, NoAuthError, NoNodeError
from kazoo.hosts import collect_hosts
from kazoo.security import ACL, Permissions

from hqueue.errors import RequestRefusedError, SettingsError
from hqueue.settings.connection import Settings
from hqueue.zookeeper.proving import acl_of, node_acl
from hqueue.zookeeper.requests import children, get_acl, set_acl
from hqueue.zookeeper.session import PIPELINED_MAX, Request, Session

__all__ = ["NodeAccess", "SeenNode"]

_CHANGES = Permissions.WRITE | Permissions.CREATE | Permissions.DELETE | Permissions.ADMIN
_TRIES_MAX = 3


class SeenNode(NamedTuple):
    """Describes a node as it was found, or left."""

    path: str
    is_open: bool
    """Whether anyone who reaches ZooKeeper may change it."""
    is_hidden: bool
    """Whether this session may not read it, nor anything below it."""
    is_changed: bool
    """Whether it was given the ACL just now."""


class NodeAccess:
    """Reads and changes the ACLs of HQueue's nodes. A context manager: it has a session of its own.

    Args:
        settings: how to reach ZooKeeper, who the session is, the root, and the ACL of nodes.
    """

    def __init__(self, settings: Settings) -> None:
        self._session = Session(settings)
        self._root = settings.zookeeper_root
        chroot = collect_hosts(settings.zookeeper)[1] or ""
        self._has_hbase = f"{settings.hbase_znode_parent}/".startswith(f"{chroot}{self._root}/")
        self._acl = acl_of(node_acl(settings))
        self.acl_text = ",".join(map(str, node_acl(settings)))
        """The ACL of new nodes, as settings write it."""

    def __enter__(self) -> NodeAccess:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._session.close()

    def check_closes(self) -> None:
        """Check that the ACL of new nodes keeps others from changing them, and that all nodes below
        the root are HQueue's.

        Raises:
            SettingsError: the ACL doesn't, or other nodes lie below the root.
        """
        if self._has_hbase:
            raise SettingsError(
                "HBase's own nodes lie below zookeeper_root, and with HQueue's ACL HBase could not "
                "use them any more: choose a root of HQueue's own, such as /hqueue",
                zookeeper_root=self._root,
            )
        if _is_open(self._acl):
            raise SettingsError(
                "zookeeper_acl lets anyone change nodes: set zookeeper_authentication, or another "
                "zookeeper_acl",
                zookeeper_acl=self.acl_text,
            )

    def survey(self) -> Iterator[SeenNode]:
        """Look at all nodes. Nodes that come or vanish meanwhile may be missing.

        Raises:
            StoreUnavailableError: ZooKeeper gave no answer.
            AuthenticationError: client and server don't accept each other.
        """
        return self._walk(closes=False, every=False)

    def close_all(self, *, every: bool = False) -> Iterator[SeenNode]:
        """Give open nodes the ACL of new nodes, and yield each as it is then. If this is
        interrupted, what was done stays, and it can be repeated.

        Args:
            every: whether nodes that are not open get it, too.

        Raises:
            SettingsError: as `check_closes`.
            RequestRefusedError: ZooKeeper does not take the ACL.
            StoreUnavailableError, AuthenticationError: as `survey`.
        """
        self.check_closes()
        return self._walk(closes=True, every=every)

    def _walk(self, *, closes: bool, every: bool) -> Iterator[SeenNode]:
        waiting = [self._root]
        while waiting:
            # The last ones first: so no more wait than the largest node has children, and its
            # ancestors' siblings.
            paths = waiting[-PIPELINED_MAX // 2 :]
            del waiting[-PIPELINED_MAX // 2 :]
            seen, below = self._look(paths, closes=closes, every=every)
            yield from seen
            waiting += below

    def _look(
        self, paths: Sequence[str], *, closes: bool, every: bool
    ) -> tuple[list[SeenNode], list[str]]:
        """Look at nodes, close them if wanted, and find what is below them."""
        answers = self._ask([(path, children(path)) for path in paths])
        below = [
            f"{path}/{name}"
            for path, names in zip(paths, answers, strict=True)
            if not isinstance(names, Exception)
            for name in names
        ]
        hidden = {
            path
            for path, names in zip(paths, answers, strict=True)
            if isinstance(names, RequestRefusedError)
        }
        found = self._acls(paths)
        changed: set[str] = set()
        for _ in range(_TRIES_MAX if closes else 0):
            wanted = {
                path: version
                for path, (acl, version) in found.items()
                if path not in changed and (every or _is_open(acl))
            }
            done = self._close(wanted)
            changed |= done
            again = wanted.keys() - done
            if not again:
                break
            found |= self._acls(again)
        seen = [
            SeenNode(
                path,
                path in found and path not in changed and _is_open(found[path][0]),
                path in hidden,
                path in changed,
            )
            for path in paths
            if path in found or path in hidden
        ]
        return seen, below

    def _acls(self, paths: Collection[str]) -> dict[str, tuple[Sequence[ACL], int]]:
        """Return the ACLs of nodes, and their versions, as far as this session may see them."""
        answers = self._ask([(path, get_acl(path)) for path in paths])
        return {
            path: (answer[0], answer[1].aversion)
            for path, answer in zip(paths, answers, strict=True)
            if not isinstance(answer, Exception)
        }

    def _close(self, versions: dict[str, int]) -> set[str]:
        """Give nodes the ACL; those that got it."""
        requests = [(path, set_acl(path, self._acl, versions[path])) for path in versions]
        answers = self._ask(requests)
        return {
            path
            for path, answer in zip(versions, answers, strict=True)
            if not isinstance(answer, Exception)
        }

    def _ask(self, requests: Sequence[tuple[str, Request]]) -> list[Any]:
        """What each was answered with; errors that are about one node are answers."""
        deadline = self._session.deadline()
        answers: list[Any] = deadline.run(
            partial(self._session.run, requests, deadline, takes_refusals=True)
        )
        for answer in answers:
            if isinstance(answer, RequestRefusedError):
                if not isinstance(answer.__cause__, NoAuthError):
                    raise answer
            elif isinstance(answer, Exception) and not isinstance(
                answer, (NoNodeError, BadVersionError)
            ):
                raise answer
        return answers


def _is_open(acl: Sequence[ACL]) -> bool:
    return any(
        entry.id.scheme == "world" and entry.id.id == "anyone" and entry.perms & _CHANGES
        for entry in acl
    )
