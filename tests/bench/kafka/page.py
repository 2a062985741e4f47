"""The part of docs/benchmarks.md with the results."""

from __future__ import annotations

import dataclasses
import statistics
import textwrap
from collections.abc import Mapping, Sequence

from ..measure import Comparison
from ..report import comparisons, number, origin, stolen, table
from .growth import MEASURES, Point

__all__ = ["CASES_PICTURE", "GROWTH_PICTURE", "Section", "part"]

CASES_PICTURE = "benchmarks-kafka.png"
GROWTH_PICTURE = "benchmarks-kafka-growth.png"

_HOW = """\
The same work, from Python, through this library and through Kafka's two. One Kafka {kafka} broker
(KRaft, broker and controller in one process, the heap and collector of its own start script, else
its defaults) and the standalone local HBase are both up, and **rounds take turns**: in each, every
library does its work once, after two rounds that aren't counted. So what makes the machine faster
or slower meets all of them. Neither server is stopped in between: a server that was just started
runs uncompiled code for a while, so every library works for half a minute before anything is
measured. The server whose turn it isn't is idle: HBase then takes
{hbase_idle:.1f} % of a core, and the broker {kafka_idle:.1f} %.

A ratio is the median over the rounds, with the lowest and the highest. Absolute figures are this
machine's, and medians. Every log has four partitions. Payloads: random bytes, which nothing can
compress, and lines of a web server's log. kafka-python gets a tenth of the work. `acks` is `all`.
HBase has the settings of
[standalone.py](../hqueue/local/standalone.py), which are not all its defaults. What Kafka's clients
have beyond theirs is in Kafka's favour: see
[confluent.py](../tests/bench/kafka/confluent.py) and
[kafka_python.py](../tests/bench/kafka/kafka_python.py).

### What an acknowledgement means

By default it means the same in both: the system has the message, and the disk may not.

- hqueue on the local HBase: the write-ahead log was written to its file (`hflush`, one `write` for
  all puts that wait for it), which is in the system's page cache.
- Kafka with `acks=all` and one replica: the partition's log was written to its file, which is in
  the system's page cache.

So it survives the death of the server's process, but not that of the machine, until the system has
written the page out. **"On disk"** is the strongest that each has:

- hqueue: a queue with the attribute `durability` of `FSYNC_WAL`: an `fsync` of the write-ahead log
  before the acknowledgement, one for all puts that wait for it.
- Kafka: a topic with `flush.messages` of 1: an `fsync` of the partition's log for each batch that
  the producer sent.

hqueue compresses what gets smaller by it, which is its default; Kafka's producers do not, which is
theirs. Where a rival is called "lz4", its producer compresses.
"""


@dataclasses.dataclass(frozen=True)
class Section:
    """The results of one case, with what was done."""

    title: str
    doc: str
    results: Sequence[Comparison]


def part(
    sections: Sequence[Section],
    points: Mapping[str, Sequence[Point]],
    *,
    kafka: str,
    libraries: str,
    idle: tuple[float, float],
) -> str:
    """The part, in Markdown.

    Args:
        sections: one a case.
        points: of each axis of the growth.
        kafka: the broker's version.
        libraries: those that were compared, with their versions.
        idle: what HBase and the broker take of a core while they wait, in percent.
    """
    parts = [
        "## Beside Kafka",
        f"{origin('make bench-kafka')},\n{libraries}.\n{stolen()}",
        _HOW.format(kafka=kafka, hbase_idle=idle[0], kafka_idle=idle[1]),
        f"![all cases]({CASES_PICTURE})",
    ]
    for section in sections:
        doc = textwrap.fill(section.doc, 100)
        parts += [f"### {section.title}", doc, comparisons(section.results)]
    parts += [
        "### How the cost grows",
        "Messages have 100 random bytes. Shaded: the lowest and the highest of the rounds. Batches "
        "go to the\npartitions in turn; single messages to one. With more than 64 partitions, "
        "several of hqueue's share a\nregion.",
        f"![growth]({GROWTH_PICTURE})",
    ]
    parts += [_growth(axis, of_axis) for axis, of_axis in points.items()]
    return "\n\n".join(each.strip() for each in parts)


def _growth(axis: str, points: Sequence[Point]) -> str:
    names = list(points[0].figures["read"])
    head = [axis, *(f"{name}: {MEASURES[measure]}" for measure in MEASURES for name in names)]
    rows = (
        [
            f"{point.size:,}",
            *(
                number(statistics.median(point.figures[measure][name]))
                for measure in MEASURES
                for name in names
            ),
        ]
        for point in points
    )
    return table(head, rows)
