"""Who asks the clock on the wall: where something lies in a log is never judged by it."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
ASKS = re.compile(r"\bwall_ms\(|\btime\.time(_ns)?\(|datetime\.(now|utcnow|today)\(")

MAY_ASK = {
    # A writer gives messages their times; its clock is measured against a region server's first.
    "hqueue/log/owned_writer.py", "hqueue/log/writer.py", "hqueue/produce/idempotency.py",
    "hqueue/log/skew.py", "hqueue/hbase/native/appends.py", "hqueue/hbase/thrift/appends.py",
    # Numbers that no two writers of a record come to.
    "hqueue/hbase/row_records.py",
    # What is only shown: ages, and names.
    "hqueue/log/lag.py", "hqueue/cli/demo/command.py", "hqueue/cli/demo/tally.py",
    "workers/hqueue_workers/console/examination.py",
    # Whether a message's time has come, which a user chose by such a clock.
    "hqueue/sharing/delays.py", "hqueue/sharing/shared_partition.py",
    "workers/hqueue_workers/delivery/delayed_delivery.py",
    # What a user says as a time before now.
    "hqueue/position.py",
    # The age of keys: a batch that no known key vouches for is read from HBase.
    "workers/hqueue_workers/delivery/append_keys.py",
    # How long a message is held back: never for longer than was asked for.
    "workers/hqueue_workers/delivery/sender.py",
    # When it is worth to ask the log, or a clock that is good: see the tests of wrong clocks.
    "workers/hqueue_workers/hub/owning/takeover.py", "spark/pyspark_hqueue/reading/plan.py",
    # The dates of certificates and tokens, which their makers chose by such a clock: the doctor's
    # report, which certificate replaces another, and when a driver gets another token for tasks.
    "hqueue/doctor/certificates.py", "hqueue/net/contexts.py",
    "spark/pyspark_hqueue/reading/clients.py",
    # The doctor compares this machine's clock with ZooKeeper's.
    "hqueue/zookeeper/probing.py",
    # The clock itself.
    "hqueue/runtime/clock.py",
}  # fmt: skip


def test_the_clock_on_the_wall_is_asked_where_a_wrong_one_does_no_harm_and_nowhere_else() -> None:
    asking = {
        str(path.relative_to(ROOT))
        for folder in ("hqueue", "workers", "spark/pyspark_hqueue")
        for path in (ROOT / folder).rglob("*.py")
        if ASKS.search(path.read_text())
    }
    assert asking == MAY_ASK
