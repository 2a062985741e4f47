"""``hqueue secure-nodes`` counts the nodes in ZooKeeper that anyone may change, and closes them."""

from __future__ import annotations

import collections
from typing import Annotated

import typer

from hqueue.cli.commands import shared_options
from hqueue.cli.exits import ExitCode
from hqueue.cli.progress import Advance, count_text
from hqueue.cli.registering import commands
from hqueue.cli.session import session_of
from hqueue.connecting import open_node_access
from hqueue.errors import InvalidInputError
from hqueue.settings.connection import Settings

__all__ = ["register"]

NOUN = "node"


def secure_nodes(
    context: typer.Context,
    *,
    apply: Annotated[
        bool,
        typer.Option("--apply", help="Set the ACL in force on the nodes that anyone may change."),
    ] = False,
    every: Annotated[
        bool, typer.Option("--all", help="With --apply, set the ACL on all nodes.")
    ] = False,
    yes: shared_options.Yes = False,
) -> None:
    """Count HQueue's nodes in ZooKeeper that anyone may change, and close them with --apply.

    The setting zookeeper_acl is the ACL in force. By default it allows only the principal with
    which the session authenticates. It must allow all programs that share the nodes. An interrupted
    run can be repeated. The exit code is 1 if anyone may change some of the nodes.
    """
    if every and not apply:
        raise InvalidInputError("--all needs --apply, which changes the nodes")
    session = session_of(context)
    settings = Settings.load(session.given)
    counts = _Counts(settings.zookeeper_root)
    with open_node_access(settings) as access, Advance("secure-nodes", noun=NOUN) as bar:
        if apply:
            access.check_closes()
            which = "all" if every else "the open"
            session.confirm(
                f"Give {which} nodes below {settings.zookeeper_root} the ACL {access.acl_text}?",
                yes=yes,
            )
        for node in access.close_all(every=every) if apply else access.survey():
            bar.advance(0)
            counts.add(*node)
    print(counts.text(applied=apply))
    if counts.open:
        raise typer.Exit(ExitCode.FAILED)


class _Counts:
    """Counts the nodes below a root."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._all = self._changed = self._hidden = 0
        self.open: collections.Counter[str] = collections.Counter()
        """The open nodes of each folder below the root."""

    def add(self, path: str, is_open: bool, is_hidden: bool, is_changed: bool) -> None:
        self._all += 1
        self._changed += is_changed
        self._hidden += is_hidden
        if is_open:
            below = path[len(self._root) :].split("/")
            self.open[below[1] if len(below) > 1 else "the root"] += 1

    def text(self, *, applied: bool) -> str:
        """One line for people."""
        parts = []
        if applied:
            parts.append(f"Closed {self._changed:,} of {self._nodes}.")
        if self.open:
            where = ", ".join(f"{name} {count:,}" for name, count in sorted(self.open.items()))
            what = f"{self.open.total():,} of {self._nodes} can be changed by anyone ({where})"
            parts.append(f"{what}: {'run this again.' if applied else 'close them with --apply.'}")
        elif not applied:
            parts.append(f"No node of {self._nodes} can be changed by anyone.")
        if self._hidden:
            parts.append(f"This principal can't look into {self._hidden:,}.")
        return " ".join(parts)

    @property
    def _nodes(self) -> str:
        return f"{count_text(self._all, NOUN)} below {self._root}"


register = commands("Security", secure_nodes)
