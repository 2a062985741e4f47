"""How many threads a process has."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from collections import Counter
from pathlib import Path

from hqueue.topics.endpoint import THREADS
from tests.support.backends import MemoryBackend
from tests.support.hubs import HubThread

PROGRAM = Path(__file__).parent / "programs" / "threads.py"
FORKING = Path(__file__).parent / "programs" / "fork_subscribing.py"
IN_A_LOOP = Path(__file__).parent / "programs" / "aio_threads.py"
SUBSCRIBING = Path(__file__).parent / "programs" / "subscribing_threads.py"
BOUND_S = 180
STORE_S = "memory-", "hqueue-loop-call", "hqueue-loop-compute"
"""Threads that make the calls of the store in memory, and one that decodes many messages."""
KAZOO = 3
"""The threads of one of its clients."""


def test_a_client_a_producer_and_a_consumer_share_one_thread_beside_zookeeper_s(
    server_environment: dict[str, str],
) -> None:
    done = subprocess.run(
        [sys.executable, PROGRAM, f"threads_{uuid.uuid4().hex}"],
        check=True,
        capture_output=True,
        env={**server_environment, "HQUEUE_HBASE": "native"},
        timeout=BOUND_S,
    )
    names, known_to_the_system = json.loads(done.stdout)
    assert len(names) == known_to_the_system
    own = Counter(name for name in names if name.startswith("hqueue"))
    sessions = own["hqueue-session"]
    assert sessions == 2, "one to commit by, and one to notify workers by"
    assert own == {"hqueue-loop": 1, "hqueue-loop-call": 1, "hqueue-session": sessions}
    others = [name for name in names if not name.startswith("hqueue")]
    assert len(others) == 1 + KAZOO * sessions


def test_one_that_subscribes_by_hubs_has_that_thread_and_those_of_its_listeners() -> None:
    topics = 12
    backend = MemoryBackend()
    with backend.connect() as admin, backend.connect() as served:
        admin.create_queue("q", partitions=1)
        with (
            HubThread(served, "q") as hub,
            subprocess.Popen(
                [sys.executable, SUBSCRIBING, str(hub.address), "q", str(topics)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            ) as process,
        ):
            assert process.stdout is not None
            assert process.stdout.readline() == "subscribed\n"
            for n in range(0, topics, 2):
                hub.hosted("q").topics.abandon(f"t{n}").result(BOUND_S)
            said, _ = process.communicate("go on\n", timeout=BOUND_S)
            assert process.returncode == 0
    names, known_to_the_system = json.loads(said)
    assert len(names) == known_to_the_system
    assert Counter(name for name in names if not name.startswith("hqueue-server-")) == {
        "MainThread": 1,
        "hqueue-loop": 1,
        "hqueue-loop-call": 1,
    }
    assert sum(name.startswith("hqueue-server-") for name in names) == THREADS, "of its port"


def test_a_program_of_an_event_loop_has_the_threads_of_its_sessions_alone() -> None:
    backend = MemoryBackend()
    with backend.connect() as admin, backend.connect() as served:
        admin.create_queue("q", partitions=1)
        with HubThread(served, "q") as hub:
            done = subprocess.run(
                [sys.executable, IN_A_LOOP, str(hub.address), "q"],
                check=True,
                capture_output=True,
                env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
                timeout=BOUND_S,
            )
    names = [name for name in json.loads(done.stdout) if not name.startswith(STORE_S)]
    sessions = names.count("hqueue-session")
    assert sessions == 3, "of the consumer, of the subscriber, and to notify workers by"
    assert {name for name in names if name.startswith("hqueue")} == {"hqueue-session"}
    assert len(names) == 1 + (1 + KAZOO) * sessions


def test_a_forked_child_follows_topics_by_a_thread_of_its_own_and_both_end_by_themselves() -> None:
    backend = MemoryBackend()
    with backend.connect() as admin, backend.connect() as served:
        admin.create_queue("q", partitions=1)
        with HubThread(served, "q") as hub:
            program = [sys.executable, FORKING, str(hub.address), "q"]
            subprocess.run(program, check=True, timeout=BOUND_S)
