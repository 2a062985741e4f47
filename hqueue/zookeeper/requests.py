"""The requests that are sent to ZooKeeper, each as what `Session.run` takes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kazoo.client import KazooClient
from kazoo.security import ACL

from hqueue.zookeeper.session import Request

__all__ = [
    "children", "create", "delete", "ensure", "exists", "get", "get_acl", "put", "set_acl", "sync",
]  # fmt: skip


def get(path: str, watch: Callable[..., object] | None = None) -> Request:
    """Its answer: (data, stat)."""

    def send(client: KazooClient) -> Any:
        return client.get_async(path, watch=watch)

    return send


def exists(path: str) -> Request:
    """Its answer: stat, or None."""

    def send(client: KazooClient) -> Any:
        return client.exists_async(path)

    return send


def children(path: str, watch: Callable[..., object] | None = None) -> Request:
    """Its answer: names."""

    def send(client: KazooClient) -> Any:
        return client.get_children_async(path, watch=watch)

    return send


def create(path: str, data: bytes, *, ephemeral: bool = False, parents: bool = True) -> Request:
    """Nodes above that don't exist are created, too, if `parents`. Its answer: the path."""

    def send(client: KazooClient) -> Any:
        return client.create_async(path, data, ephemeral=ephemeral, makepath=parents)

    return send


def ensure(path: str) -> Request:
    """Create a node and those above it, as far as they don't exist."""

    def send(client: KazooClient) -> Any:
        return client.ensure_path_async(path)

    return send


def put(path: str, data: bytes, version: int = -1) -> Request:
    """Change a node if it has this version; -1 for any. Its answer: stat."""

    def send(client: KazooClient) -> Any:
        return client.set_async(path, data, version)

    return send


def delete(path: str, version: int = -1) -> Request:
    """Delete a node if it has this version; -1 for any."""

    def send(client: KazooClient) -> Any:
        return client.delete_async(path, version)

    return send


def get_acl(path: str) -> Request:
    """Its answer: (entries, stat)."""

    def send(client: KazooClient) -> Any:
        return client.get_acls_async(path)

    return send


def set_acl(path: str, entries: Sequence[ACL], version: int) -> Request:
    """Give a node an ACL if the one that it has has this version. Its answer: stat."""

    def send(client: KazooClient) -> Any:
        return client.set_acls_async(path, list(entries), version)

    return send


def sync(path: str) -> Request:
    """Let the server that is asked take in all that was changed before. Its answer: the path."""

    def send(client: KazooClient) -> Any:
        return client.sync_async(path)

    return send
