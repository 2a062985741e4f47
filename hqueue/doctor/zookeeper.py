"""Checks that ZooKeeper answers, what this client may do there, and ZooKeeper's clock."""

from __future__ import annotations

import itertools

from hqueue.connecting import open_node_access, probe_zookeeper
from hqueue.doctor.certificates import tls_of
from hqueue.doctor.clocks import clock_finding
from hqueue.doctor.findings import Finding, Found, Level, of_error, ok, said, warning, wrong
from hqueue.doctor.peers import Peers, look_at_peers
from hqueue.doctor.subject import Subject
from hqueue.errors import StoreError
from hqueue.net.endpoints import Met
from hqueue.settings.addresses import zookeeper_servers

__all__ = ["check_zookeeper", "check_zookeeper_servers"]

_RIGHT = (
    "compare zookeeper_authentication with that ACL: as a principal with the right, add this "
    "principal to zookeeper_acl, and run `hqueue secure-nodes --all --apply`"
)

AWAY = "ZooKeeper does not serve this client"

NODES_MAX = 1_000
"""The check looks at this many nodes: a cluster may have millions."""


def check_zookeeper_servers(subject: Subject) -> Found:
    """Connect to each server."""
    settings = subject.settings
    servers = zookeeper_servers(settings.zookeeper)
    peers = Peers(
        "zookeeper",
        "ZooKeeper",
        tls_of(settings, "zookeeper_tls") if settings.zookeeper_tls else None,
        "zookeeper_tls",
        settings.connect_timeout_ms / 1e3 / len(servers),
        Met.ZOOKEEPER,
    )
    found = [*look_at_peers(peers, servers)]
    yield from found
    return AWAY if all(each.level is Level.WRONG for each in found) else None


def check_zookeeper(subject: Subject) -> Found:
    """Create a node and delete it."""
    settings = subject.settings
    try:
        found = probe_zookeeper(settings)
    except StoreError as exc:
        yield of_error(
            "zookeeper", exc, _RIGHT,
            "check that ZooKeeper runs there, that the port is not another server's, and whether "
            "it speaks TLS at this port",
        )  # fmt: skip
        return AWAY
    rules = "" if found.acl is None else f", whose ACL is {', '.join(found.acl)}"
    if found.refused is not None:
        yield wrong(
            "zookeeper",
            f"this client may not create nodes below {found.path}{rules}: {said(found.refused)}",
            _RIGHT,
        )
        return None
    yield ok("zookeeper", f"this client may create nodes below {found.path}{rules}")
    if subject.is_secured:
        yield _whose_nodes(subject)
    yield clock_finding("ZooKeeper", found.ahead_ms, found.error_ms, settings.clock_skew_ms_max)
    return None


def _whose_nodes(subject: Subject) -> Finding:
    """Check that nobody else may change the first nodes."""
    with open_node_access(subject.settings) as access:
        seen = [*itertools.islice(access.survey(), NODES_MAX)]
    paths = [node.path for node in seen if node.is_open]
    if paths:
        return warning(
            "zookeeper",
            f"anyone who reaches ZooKeeper may change {paths[0]}, and {len(paths) - 1} other nodes "
            f"of {len(seen)}",
            "set zookeeper_authentication in all programs, and close the nodes with `hqueue "
            "secure-nodes --apply`",
        )
    return ok("zookeeper", f"nobody else may change any of the {len(seen)} nodes that were checked")
