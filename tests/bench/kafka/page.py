"""The part of docs/benchmarks.md with the results."""

from __future__ import annotations

import dataclasses
import statistics
import textwrap
from collections.abc import Mapping, Sequence

from ..measure import Comparison
from ..report import comparisons, number, origin, stolen, table
from .growth import MEASURES, Point

__all__ = [
    "CASES_PICTURE",
    "GROWTH_PICTURE",
    "LOOP_COMMAND",
    "Section",
    "loop_part",
    "part",
]

LOOP_COMMAND = "make bench-kafka BENCH=asyncio"

CASES_PICTURE = "benchmarks-kafka.png"
GROWTH_PICTURE = "benchmarks-kafka-growth.png"

_HOW = """\
The same work is done from Python, through this library and through Kafka clients. A Kafka {kafka}
broker and the standalone local HBase are both up. The broker runs KRaft, with broker and controller
in one process, the heap and collector of its own start script, and otherwise its defaults. The
libraries **take turns**: in each round, every library does its work once, after two rounds that are
not counted. So anything that makes the machine faster or slower affects all of them. Neither server
is stopped in between. A server that was just started runs uncompiled code for a while, so every
library works for half a minute before the measurement. While one server works, the other is idle:
an idle HBase takes {hbase_idle:.1f} % of a core, and an idle broker {kafka_idle:.1f} %.

A ratio is the median over the rounds, with the lowest and the highest. Absolute figures are medians
on this machine. Every log has four partitions. The payloads are random bytes, which can't be
compressed, and lines of a web server's log. kafka-python gets a tenth of the work. `acks` is `all`.
HBase has the settings of [standalone.py](../hqueue/local/standalone.py), which differ from its
defaults in places. Where the settings of the Kafka clients differ from their defaults, the
difference is in Kafka's favour: see
[confluent.py](../tests/bench/kafka/confluent.py) and
[kafka_python.py](../tests/bench/kafka/kafka_python.py).

### What an acknowledgement means

By default an acknowledgement means the same in both: the operating system has the message, but the
disk may not have it yet.

- hqueue on the local HBase: the write-ahead log was written to its file (`hflush`, one `write` for
  all puts that wait for it), which is in the system's page cache.
- Kafka with `acks=all` and one replica: the partition's log was written to its file, which is in
  the system's page cache.

So an acknowledged message survives a crash of the server's process. It survives a crash of the
machine only after the system has written the page to disk. **"On disk"** is the strongest
acknowledgement of each:

- hqueue: a queue with `durability` set to `FSYNC_WAL`: an `fsync` of the write-ahead log
  before the acknowledgement, one for all puts that wait for it.
- Kafka: a topic with `flush.messages` set to 1: an `fsync` of the partition's log for each
  batch that the producer sent.

By default, hqueue compresses messages that compression makes smaller, and Kafka's producers don't
compress. A rival that is called "lz4" has a producer that compresses.
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
        "Messages have 100 random bytes. The shaded areas span the lowest and the highest round. "
        "Batches go\nto the partitions in turn, single messages all to one partition. With more "
        "than 64 partitions, several\nof hqueue's partitions share a region.",
        f"![growth]({GROWTH_PICTURE})",
    ]
    parts += [_growth(axis, of_axis) for axis, of_axis in points.items()]
    return "\n\n".join(each.strip() for each in parts)


def loop_part(section: Section, *, kafka: str, libraries: str) -> str:
    """The part about event loops, in Markdown. The arguments are those of `part`."""
    how = (
        f"A Kafka {kafka} broker and the standalone local HBase are both up, as for the other "
        "comparisons with Kafka, and an acknowledgement means what it means there. The libraries "
        f"take turns in each round. {section.doc}"
    )
    return "\n\n".join(
        [
            f"## {section.title}, beside Kafka's clients",
            f"{origin(LOOP_COMMAND)},\n{libraries}.\n{stolen()}",
            textwrap.fill(how, 100),
            comparisons(section.results),
        ]
    )


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
