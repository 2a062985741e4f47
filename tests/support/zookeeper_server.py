"""A ZooKeeper of one's own that can be killed and started again."""

from __future__ import annotations

import shutil
import socket
import struct
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import psutil

from hqueue.local.configuration import Launcher
from hqueue.local.freeports import choose_ports
from hqueue.local.home import Home
from hqueue.local.jars import ensure_jars
from hqueue.local.java import find_java
from hqueue.local.logs import last_lines
from hqueue.local.process import LocalProcess, end_all, spawn
from hqueue.settings.addresses import Address

__all__ = ["ZooKeeperServer"]

START_S = 30.0
LOG_HEADER = struct.Struct(">4siq")
"""Of a file of ZooKeeper's log: magic, version, database."""
ENTRY_HEADER = struct.Struct(">qi")
"""Of a transaction in it: checksum, length. After it comes the byte ``B``."""


class ZooKeeperServer:
    """A single ZooKeeper with an empty folder. A context manager: it runs in the block.

    Args:
        settings: of its configuration, beyond the defaults.
        heap_mb: the largest heap of its Java.
        options: further ones of its Java.
        start_s: how long it may take to start.
    """

    def __init__(
        self,
        settings: Mapping[str, object] | None = None,
        *,
        heap_mb: int = 384,
        options: Sequence[str] = (),
        start_s: float = START_S,
    ) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="hqueue-zookeeper-"))
        self._start_s = start_s
        self._java = find_java()
        launcher = Launcher(Home(self._folder), self._java, ensure_jars())
        launcher.clear()
        port = choose_ports(["zookeeper"])["zookeeper"]
        self.zookeeper = f"127.0.0.1:{port}"
        configuration = self._folder / "zoo.cfg"
        values = {
            "dataDir": f"{self._folder}/data",
            "clientPort": port,
            "clientPortAddress": "127.0.0.1",
            **(settings or {}),
        }
        text = "".join(f"{name}={value}\n" for name, value in values.items())
        configuration.write_text(text, encoding="utf-8")
        self._plan = launcher.plan(
            "zookeeper",
            "org.apache.zookeeper.server.ZooKeeperServerMain",
            str(configuration),
            host="127.0.0.1",
            ports={"zookeeper": port},
            heap_mb=heap_mb,
            options=["-Dzookeeper.admin.enableServer=false", *options],
        )
        self._process: LocalProcess | None = None

    def __enter__(self) -> ZooKeeperServer:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.kill()
        shutil.rmtree(self._folder, ignore_errors=True)

    def start(self) -> None:
        """Start it, and wait until it serves: it listens before it has read its log.

        Raises:
            AssertionError: it ended, or did not come up; the last lines of its log are in it.
        """
        process = self._process = spawn(self._plan)
        ends = time.monotonic() + self._start_s
        while not self._serves():
            if not process.alive() or time.monotonic() > ends:
                raise AssertionError("\n".join(last_lines(Path(self._plan.log), 40)))
            time.sleep(0.5)

    def _serves(self) -> bool:
        try:
            with socket.create_connection(Address.parse(self.zookeeper), timeout=1) as asking:
                asking.sendall(b"srvr")
                return b"Mode: standalone" in asking.makefile("rb").read()
        except OSError:
            return False

    def kill(self) -> None:
        if self._process is not None:
            end_all([self._process], orderly_s=0)

    def memory_bytes(self) -> int:
        """What its process has of the machine's memory when it has just collected its garbage."""
        assert self._process is not None
        collect = [str(self._java.executable.with_name("jcmd")), str(self._process.pid), "GC.run"]
        subprocess.run(collect, check=True, stdout=subprocess.DEVNULL, timeout=self._start_s)
        return int(psutil.Process(self._process.pid).memory_info().rss)

    def transaction_bytes(self) -> Iterator[int]:
        """The length of each transaction in its log."""
        for file in sorted((self._folder / "data").glob("version-2/log.*")):
            log = file.read_bytes()
            assert log.startswith(b"ZKLG")
            at = LOG_HEADER.size
            while at + ENTRY_HEADER.size <= len(log):
                checksum, length = ENTRY_HEADER.unpack_from(log, at)
                if not checksum and not length:
                    break  # The file is allocated ahead, with zeros.
                at += ENTRY_HEADER.size + length + 1
                assert log[at - 1 : at] == b"B", "the end of a transaction"
                yield length
