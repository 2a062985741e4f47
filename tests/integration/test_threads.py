"""How many threads a process has."""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from collections import Counter
from pathlib import Path

PROGRAM = Path(__file__).parent / "programs" / "threads.py"
BOUND_S = 180
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
