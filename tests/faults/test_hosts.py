"""Hosts that are apart: what is cut doesn't arrive, and all else does."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from .hosts import CLIENTS, Hosts, NoHostsError, can_have_hosts, hosts_apart

SAY = """\
import socket
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
    s.sendto(b"hello", ("{address}", {port}))
"""
HEAR = """\
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(("{address}", 0))
s.settimeout({bound_s})
print(s.getsockname()[1], flush=True)
try:
    print(s.recv(100).decode(), flush=True)
except TimeoutError:
    print("nothing", flush=True)
"""
ARRIVES_WITHIN_S = 20.0
LOST_AFTER_S = 0.5


def arrives(hosts: Hosts, source: str, target: str, *, bound_s: float) -> bool:
    """Whether a datagram from one host to another arrives."""
    cluster = hosts.of_cluster()

    def command(host: str, program: str) -> list[str]:
        within = () if host == CLIENTS else cluster.command(host)
        return [*within, sys.executable, "-c", program]

    address = hosts.address(target)
    hear = HEAR.format(address=address, bound_s=bound_s)
    with subprocess.Popen(command(target, hear), stdout=subprocess.PIPE, text=True) as hearing:
        assert hearing.stdout is not None
        port = int(hearing.stdout.readline())
        say = SAY.format(address=address, port=port)
        subprocess.run(command(source, say), check=True, timeout=ARRIVES_WITHIN_S)
        return hearing.stdout.readline().strip() == "hello"


def test_a_cut_drops_one_direction_silently_until_it_is_mended() -> None:
    if not can_have_hosts():
        with pytest.raises(NoHostsError, match="root"), hosts_apart(["a", "b"]):
            pass
        return
    with hosts_apart(["a", "b"]) as hosts:
        for source, target in (("a", "b"), (CLIENTS, "b"), ("b", CLIENTS)):
            hosts.cut([source], [target])
            assert not arrives(hosts, source, target, bound_s=LOST_AFTER_S)
            assert arrives(hosts, target, source, bound_s=ARRIVES_WITHIN_S)
            hosts.mend([source], [target])
            assert arrives(hosts, source, target, bound_s=ARRIVES_WITHIN_S)
        hosts.cut(["a"], ["b", CLIENTS])
        hosts.cut(["a", CLIENTS], ["b"])
        hosts.mend(["a"], ["b", CLIENTS])
        assert not arrives(hosts, "a", "b", bound_s=LOST_AFTER_S)
        hosts.mend(["a", CLIENTS], ["b"])
        assert arrives(hosts, "a", "b", bound_s=ARRIVES_WITHIN_S)
    spaces = subprocess.run(["ip", "netns"], capture_output=True, text=True, check=True).stdout
    assert f"hq{os.getpid()}-" not in spaces
