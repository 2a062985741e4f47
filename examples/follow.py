"""Read messages as they are written, and continue after a restart where this program stopped.

python examples/follow.py events positions.json
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path

import hqueue
from hqueue import MessageID, Scan


def load(path: Path) -> dict[int, MessageID]:
    """The next ID of each partition, as `save` wrote it; empty if the program never ran."""
    if not path.exists():
        return {}
    saved = json.loads(path.read_text())
    return {int(partition): MessageID.parse(text) for partition, text in saved.items()}


def save(path: Path, positions: dict[int, MessageID]) -> None:
    """Replace the file as a whole: a crash leaves the old one or the new one."""
    aside = path.with_suffix(".new")
    aside.write_text(json.dumps({str(p): str(next_id) for p, next_id in positions.items()}))
    os.replace(aside, path)


def main() -> None:
    parser = argparse.ArgumentParser(description="Print messages as they are written.")
    parser.add_argument("queue", help="its name; it must be there")
    parser.add_argument("positions", type=Path, help="a file for the positions that were reached")
    parser.add_argument("--idle-ms", type=int, default=10_000, help="longest wait for a message")
    arguments = parser.parse_args()

    positions = load(arguments.positions)
    with hqueue.connect() as client:
        queue = client.queue(arguments.queue)
        scans = {p: Scan(start=positions.get(p)) for p in range(queue.partitions)}
        with queue.combined_partition_scanner(
            scans, follow=True, idle_ms_max=arguments.idle_ms
        ) as scanner:
            for message in scanner:
                print(f"{message.partition} {message.topic} {message.value.decode()}", flush=True)
                positions[message.partition] = message.id.next()
                # After the work, so that a crash repeats a message and never leaves one out.
                save(arguments.positions, positions)


if __name__ == "__main__":
    main()
