"""What it costs that a process can be watched: puts, a producer and a consumer over memory, in the
commit before that and now, with nothing that watches, with metrics, and with traces.

Over memory nothing waits, so the ratios are larger than on any store. The variants run one after
the other again and again, each time in a process of its own; the fastest run of each counts.

    python -m tests.bench.watching --before COMMIT [--rounds 7]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
VARIANTS = ("before", "off", "metrics", "traces")
WORKLOAD = """
import json, sys, time
import hqueue
from tests.support.backends import MemoryBackend

variant = sys.argv[1]
if variant == "metrics":
    import hqueue.metrics
    hqueue.metrics.enable()
if variant == "traces":
    import hqueue.traces
    from opentelemetry.sdk.trace import TracerProvider
    hqueue.traces.enable(TracerProvider())
took = {}

def measured(name, work):
    began = time.process_time()
    work()
    took[name] = time.process_time() - began

with MemoryBackend().connect() as client:
    queue = client.create_queue("q", partitions=1)
    message = hqueue.Message("t", b"v" * 100)

    def put():
        for _ in range(2_000):
            queue.put(message)

    def produce():
        with queue.producer() as producer:
            for _ in range(100_000):
                producer.send_value("t", b"v" * 100)

    def consume():
        with hqueue.Consumer("q", group="g", client=client) as consumer:
            for count, _ in enumerate(consumer.messages(), 1):
                if count == 102_000:
                    break

    measured("put", put)
    measured("produce", produce)
    measured("consume", consume)
print(json.dumps(took))
"""


def run(variant: str, tree: Path) -> dict[str, float]:
    """The processor time of each part, in seconds."""
    path = os.pathsep.join([str(tree), str(tree / "workers")])
    ended = subprocess.run(
        [sys.executable, "-c", WORKLOAD, variant],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
        timeout=600,
    )
    found: dict[str, float] = json.loads(ended.stdout)
    return found


def main() -> None:
    """Measure, and print the ratios to the commit before."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--before", required=True, help="the commit to compare with")
    parser.add_argument("--rounds", type=int, default=7)
    given = parser.parse_args()
    best: dict[str, dict[str, float]] = {each: {} for each in VARIANTS}
    with tempfile.TemporaryDirectory() as folder:
        before = Path(folder) / "before"
        archive = subprocess.run(
            ["git", "archive", given.before], cwd=ROOT, stdout=subprocess.PIPE, check=True
        )
        before.mkdir()
        subprocess.run(["tar", "-x", "-C", str(before)], input=archive.stdout, check=True)
        for _ in range(given.rounds):
            for variant in VARIANTS:
                took = run(variant, before if variant == "before" else ROOT)
                for name, seconds in took.items():
                    best[variant][name] = min(seconds, best[variant].get(name, seconds))
    print("processor time, as a multiple of that before:")
    for variant in VARIANTS:
        ratios = {name: best[variant][name] / best["before"][name] for name in best["before"]}
        shown = "  ".join(f"{name} {ratio:5.2f}" for name, ratio in ratios.items())
        print(f"{variant:<8} {shown}")


if __name__ == "__main__":
    main()
