"""``python -m tests.faults.page FOLDER… --fuzz FILE``: write docs/reliability.md from
reports.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from .earlier_runs import fuzzed_on, runs_on
from .parts import PartsError, whole_runs
from .planted_bugs import BUGS, SECTION, rows
from .report import ALL_KINDS
from .schedule import FAULTS

__all__ = ["page"]

DOCS = Path(__file__).parents[2] / "docs"

Figures = dict[str, Any]

_HEAD = """\
# Reliability

This page shows how the queue's promises ([guarantees.md](guarantees.md)) are tested while servers
die, and the results. `python -m tests.faults.page` writes it from the figures of the runs.

**Promised:** a message whose put was acknowledged is read exactly once, in the order of the IDs
that the puts returned. A message whose put failed is never read, and a message whose outcome is
unknown at most once. Every reader sees the same order, and no message appears behind a reader. The
same holds for each topic that hubs own, whichever hub owns it: a message with a sequence number is
in the topic once, and subscribers get all messages of the topic, in order, from their cursors on.
A share group delivers each message until a consumer acknowledges it or it becomes a dead letter,
and never to two consumers at once while a lock lasts.

{verdict}

## The runs

"""

_HOW = """
![seed {seed}](reliability-seed-{seed}.png)

## How it is tested

A real cluster on one machine (as `hqueue local start --profile cluster`, but with three servers of
ZooKeeper): ZooKeeper, a name node, three data nodes, a master and three region servers, each a
process of its own; in runs over gateways also three pairs of gateways. (In the runs of seeds 31 to
34, 42 and 3, ZooKeeper was one server.) Six producers and three readers use a queue of six
partitions through TCP proxies, in front of the region servers or of the gateways. Each producer is
a process: they make single puts, batches, puts by key and puts to any partition; one keeps writing
when its clock is wrong, and one uses a `Producer`. The readers make consecutive scans and scans
from the middle, and follow the log. Where root runs the suite, each server has a network namespace
and an address of its own. A router between them drops packets from one server to another, silently
and in each direction alone. Each server that stores anything has a disk of its own: an ext4 file
system on a loop device, whose power is cut by the ioctl with which file systems are tested
themselves. Two workers deliver the queue to two subscribers, one of which requests
some messages again. Three consumers of a group share the queue (one polls, and commits now and
then; one iterates, and lets its consumer commit; one commits in the background, leaves and comes
back). Half of the puts are messages with keys and headers of all kinds, and half are messages
without, so that batches of both formats are mixed. All the time a stranger notifies the workers of
batches that were never put.

At the same time three hubs own six topics of a second queue. Four publishers (two publish each
message once; two give sequence numbers, and retry until the message is in the topic, even after
they were killed and restarted) and two subscribers (one consumes by its answers, one acknowledges
explicitly) know only the hubs' addresses. Half of their processes, chosen by the seed, are programs
in asyncio, except the subscriber that acknowledges explicitly. A put gives up after 20 s and a
request after 5 s, which is less than a recovery may take, so all three outcomes occur.

Three processes share a third queue, which two more fill; some of its messages are delayed. Each of
the three has a consumer in each of two share groups. One of these groups keeps the order of each
key. One process polls, one iterates, and one polls in an event loop, where some calls are
cancelled. Their programs acknowledge most messages; they release, release for later, reject and
renew others, forget some, and acknowledge some after their locks have lapsed. Now and then they
leave and come back. They, and no other processes, reach ZooKeeper through a proxy, which can cut
them off.

Each process records each operation before it tries it, and then the outcome: **ok**, **fail** (not
applied) or **unknown**. With a message's name it records a digest of topic, value, key and headers,
so that a changed message is found. Then the producers end, the readers read to the end, and one
last reader reads everything, while the log's links, ordinals and checksums are verified. From these
histories alone the checkers ([checker.py](../tests/faults/checker.py) for the log,
[delivery_checker.py](../tests/faults/delivery_checker.py) for push,
[group_checker.py](../tests/faults/group_checker.py) for the group,
[topic_checker.py](../tests/faults/topic_checker.py) for hubs,
[share_checker.py](../tests/faults/share_checker.py) for share groups) look for:

"""

_FAULTS = """
Tests plant each of these violations in a correct history, and the checkers must find it:
[test_checker.py](../tests/faults/test_checker.py),
[test_delivery_checker.py](../tests/faults/test_delivery_checker.py),
[test_group_checker.py](../tests/faults/test_group_checker.py),
[test_topic_checker.py](../tests/faults/test_topic_checker.py) and
[test_share_checker.py](../tests/faults/test_share_checker.py).

A consumer records the messages that it is given. It also records each take-over and commit twice:
before it tries, and then with the resulting version of the group's offset. These versions give the
order of all take-overs and commits, whatever a paused process believes. So the checker can show
that every acknowledged message was given to a consumer; that no consumer skipped a message, or
committed one that it was not given; that repeated messages lay after the last commit; and that no
consumer committed or got messages of a partition that another consumer had taken over.
[test_consumer_processes.py](../tests/integration/test_consumer_processes.py) checks the same for 50
consumers in ten processes.

The program of a share consumer records when it asked for messages, which messages it got, each
answer before it gives it, and each commit that succeeded. The numbers of a message's deliveries
give their order. So the checker can show that every message whose put succeeded was acknowledged by
a consumer of each group, or is a dead letter of that group; that no consumer got a message while
another one held its lock, by that other consumer's clock; and that no message came again after a
commit had written its acknowledgement or rejection before the lock lapsed.
[test_share_consumers.py](../tests/integration/test_share_consumers.py) checks the same for six
processes on one partition, two of them killed.

A subscriber of hubs records the cursor that each hub reports for its subscription, and the stored
cursors are read all the time. So the checker can show that no subscription began below a stored
cursor, that each got all messages of its topic from its first cursor on, in order, and that no
message at or below a cursor that was stored long before came again. The messages of publishers that
give sequence numbers are in their topics in the order of these numbers, without a gap or a
duplicate, however often the publishers were killed. A message that was first tried after another
message was known to be in the topic lies after it, whichever publisher sent it.
[test_hub_restart.py](../tests/integration/test_hub_restart.py) kills a hub that owns 30,000 topics,
and then restarts ZooKeeper.

## What each fault does

"""

_RUN = """
`kill-gateway` and `pause-gateway` occur only in runs over gateways (`--hbase gateways`). Other runs
use HBase's own RPC, as the library does without `gateways`. Their proxies tell requests apart by
their numbers: a fault of one request does not affect the others on its connection, unless the
connection is cut. Requests to the master bypass the proxies, and so do the suite's own requests to
region servers (for the location of `hbase:meta`, and for compactions).

Faults of the servers, of the producers, of the workers and subscribers, of the consumers, of the
hubs and their clients, and of the share consumers are under way beside each other: one of each at a
time. Of the servers, there are also two and three faults at once. The seed draws which, within
[limits](../tests/faults/together.py) that leave the promises able to hold: of three data nodes at
most two are gone, and at most one loses power or has wrong bits. The seed alone determines the
schedule: all kinds occur once before any occurs twice, and six sets of two faults and three sets of
three occur meanwhile. The first fault waits until each process that writes messages has written
some. A fault that had no effect is not counted, and a run in which some kind never had an effect
counts as failed. A long run may be stopped between its parts: each part begins with a fresh cluster
and is judged whole, and the schedule goes on where the part before it ended. The table adds up the
parts of a seed.

In runs of `make test-upgrades` all processes begin with the last release
([versions.py](../tests/faults/versions.py) names its commit), which is installed in an environment
of its own. One by one, all processes of a kind except the stranger are switched to the present
code; then all go back, one by one. Each must have put, got or served a message before another one
of its track is switched. So each version reads what the other one stored, and takes over
partitions, topics, offsets and locks from it. No other run has these faults.
[test_exchange.py](../tests/faults/test_exchange.py) shows without servers that each version goes on
with what the other one left.

A run in which a fault took place too rarely, or in which processes put, published or got less than
a message in five seconds, proves nothing, and counts as failed, too.

The longest stall is the longest time in which some partition accepted no put from any producer,
during a fault or just after it. The machine has two cores, and other runs or tests ran at the same
time: a cluster that has its machine to itself recovers sooner. When HDFS takes no new file
(`fill-namenode`, `fill-datanodes`), the master and all region servers end; then all regions are
recovered, as after `kill-all`.

A region server that was paused may not know yet that its regions were assigned to other servers.
HBase then lets it answer reads from its old state. Scans at these moments are not counted as
`stale`; [guarantees.md](guarantees.md) explains the consequences.

## Bad input

`make fuzz` ([tests/fuzz](../tests/fuzz)) gives damaged and made-up input to everything that reads
input: cells, headers and row keys, whole logs of forged rows, answers from the network, handshakes
of SASL and TLS, calls of strangers, settings, texts and command lines. An input is a finding if it
causes any error but an `HQueueError`, takes 10 s or takes 256 MiB. In
{minutes:.0f} minutes (seed {seed}):

"""

_STRANGERS = """
## Strangers at the ports

`python -m tests.strangers` ([tests/strangers](../tests/strangers)) attacks every port of every
role: of a hub, the Thrift API, health and metrics, a worker, a subscriber and a client of hubs,
each in clear and with certificates on both sides. `make test-all` runs it. The attacks come from
another process, all at once: incomplete calls, calls sent byte by byte, thousands of idle
connections, random frames, huge announced lengths, deep nesting, texts of 4 MiB, calls of 300,000
structs, connection storms, and unread answers. A port that demands certificates also gets halves
of handshakes by the hundred, some byte by byte; handshakes with no certificate, with an expired
one, and with a forged one whose chain has 90 KB; hellos of 120 KB, renegotiation, calls in clear,
and calls of a principal without any right.

Meanwhile an honest caller calls every 20 ms. Each role runs over stores in memory. The same
attack first runs against a port of another process, which reads and does nothing: this shows how
long the honest caller waits for the machine, because the caller, the role and the attackers share
its two cores. A port gives way if it exceeds one of these bounds:

- **The honest caller.** Each of its calls is answered, during the attack and after it. 99 of 100
  calls take at most five times as long as the slowest of these: a call alone, a call during
  the attack on that other process, and 5 ms. `make test-all`, which does not measure the machine,
  allows a second.
- **Memory.** The process takes at most 512 MiB more than before the attack.
- **The processor.** The process uses at most one core.
- **The log.** The process logs at most a line a second. With certificates it also writes at most
  one line a second to the audit for the principal without any right, after ten at once.

No port gives way. In clear, a call takes a few milliseconds beside the attack; with certificates
it takes below 30 ms, because the port makes the strangers' handshakes, too. A port uses about
half a core. Single steps of C code delay the honest caller, because they hold Python's lock:
reading a text of 4 MiB takes 1 to 3 ms, and freeing the objects of 300,000 structs takes 13 ms.
Between such steps a thread that reads a large call releases the lock five times a millisecond.

`python -m tests.strangers.quotas` lets ten principals exceed their [quotas](security.md#quotas)
at a hub and obey none of its answers: with one call after the other, by the hundred, with a MiB
each, over 300 connections, and with another connection for each call. The honest caller, whose
calls no quota limits, must wait at most twice as long as the slowest of these: a call alone, a
call beside the same attack on another hub, and 2 ms. Only the last attack comes near that bound,
because the port must make the handshake before it knows who calls.
"""

_FOUND = """
## What it found

- A stale answer of a paused region server could make an append believe that another writer had its
  slot, so that it appended again; or that its batch was not a link of the chain, so that it took
  the batch back. An append now decides by one answer of one server, and only if that server knows
  the batch. The fault `stale` in [tests/model](../tests/model/scenarios.py) shows this without a
  cluster.
- Two tasks of a worker used one reader when several large batches came at once: the poller
  requested them while the scanner continued to read. A batch was skipped, and the checkpoint moved
  past it: its message was not delivered. A reader has one user at a time now.
- A large batch displaced messages from the window of a subscriber that was behind and still needed
  them. The worker then requested them again and again, and did nothing else.
  [test_cursor.py](../tests/unit/workers/delivery/test_cursor.py) shows both without a cluster.
- An attacker between client and server could send bytes in clear right after the last step of
  Kerberos' handshake, and the client took them for frames of the server, under `integrity` and
  `privacy`, too. Such bytes now end the connection:
  [test_talking.py](../tests/unit/net/test_talking.py).
- A client of a port could resume a session of TLS 1.2 without a check of its certificate:
  [test_attacked_ports.py](../tests/unit/test_attacked_ports.py).
- A local server's process counted as ended when its first thread had ended, while its port was
  still open: [tests/unit/local/test_process.py](../tests/unit/local/test_process.py).
- A share consumer acquired a delayed message whose time had come together with earlier messages
  that came again. It took the delayed message for one that an operator had skipped, and the message
  was lost: [test_share_consumer.py](../tests/unit/test_share_consumer.py).
- A client of an ensemble took the whole time-out of its session to connect to one server that was
  cut off silently, and so lost the session although the other servers were there:
  [test_ensembles.py](../tests/unit/zookeeper/test_ensembles.py).
- A consumer group that had consumed messages which the log lost afterwards, with the power of all
  servers, began again with the oldest message of the log. It goes on at its offset now, or at the
  log's end: [test_lost_suffix.py](../tests/integration/test_lost_suffix.py).
- When the disks of all data nodes were full to the last byte, HDFS could not recover the blocks
  that were being written until the data nodes were restarted, and dropped their last acknowledged
  bytes. Data nodes of `hqueue local` reserve room now:
  [test_full_disks.py](../tests/harmed/test_full_disks.py),
  [operating.md](operating.md#full-disks).
- `hqueue verify` ended, without a row, where HBase could not read a damaged file:
  [test_unreadable_rows.py](../tests/unit/log/test_unreadable_rows.py).

## Run it

```
make test-faults                                      # a random seed, every kind once or more
make test-faults FAULTS='--seed 1 --duration 600'     # a run of the table
make test-faults FAULTS='--faults kill-meta,compact'  # some kinds only
make test-faults FAULTS='--hbase gateways'            # over gateways, not natively
make test-faults FAULTS='--no-apart'                  # without faults of the network
make test-faults FAULTS='--no-power'                  # without losses of power
python -m tests.faults.losses --cuts 5                # what each durability loses, and costs
python -m tests.faults --seed 1 --plan                # only show what would happen
python -m tests.faults --seed 9 --duration 1500 --part 1   # a long run, part by part
python -m tests.faults --seed 9 --duration 1500 --part 2   # it goes on where part 1 ended
python -m tests.faults.planted durability             # does a fault find a bug that is planted?
make test-upgrades FAULTS='--seed 1'                  # from the last release, and back
make fuzz FUZZ='--seed 1 --duration 600'
python -m tests.strangers --seconds 180
python -m tests.strangers.quotas --seconds 60
python -m tests.faults.page reports/faults-* --fuzz reports/fuzz-1.json   # write this page
python -m tests.faults.page reports/faults-7 --add                        # add a run to it
python -m tests.faults.page reports/faults-9-part-* --add                 # add up all its parts
```

The command prints the seed, each fault as it happens, and the verdict. `reports/faults-SEED/` has
the histories, the figures and the picture, and the servers' logs if something was wrong. The exit
status is 0 if all promises were kept, 1 if one was broken, and 3 if the run itself failed.
"""


def page(runs: Sequence[Figures], pictured: int, fuzzed: Figures) -> str:
    """The page.

    Args:
        runs: the figures of runs with faults.
        pictured: the seed of the one that is shown as a picture.
        fuzzed: the figures of a run of the fuzzer.
    """
    wrong = sum(sum(run["violations"].values()) for run in runs)
    puts = sum(sum(run["puts"].values()) for run in runs)
    faults = sum(sum(run["faults"].values()) for run in runs)
    minutes = sum(run["duration_s"] for run in runs) / 60
    verdict = (
        f"**Found:** in {minutes:.0f} minutes of {len(runs)} runs, with {faults:,} faults and "
        f"{puts:,} puts, promises were broken {wrong} times."
    )
    parts = [
        _HEAD.format(verdict=verdict),
        _table(["", *(f"seed {run['seed']}" for run in runs)], _run_rows(runs)),
        "\nFaults by kind, and the longest stall of each:\n\n",
        _table(["", *(f"seed {run['seed']}" for run in runs)], _fault_rows(runs)),
        _HOW.format(seed=pictured),
        _table(["kind", "what"], _violation_rows()),
        _FAULTS,
        _table(
            ["fault", "harms", "what it does"],
            [[f"`{f.name}`", f.track, f.doc] for f in FAULTS.values()],
        ),
        _RUN.format(
            seed=fuzzed["seed"],
            minutes=sum(of["seconds"] for of in fuzzed["targets"].values()) / 60,
        ),
        _table(["input", "executions", "findings"], _fuzz_rows(fuzzed)),
        _STRANGERS,
        SECTION,
        _table(["faults", "planted bug", "what finds it", "reported"], rows(BUGS)),
        _FOUND,
    ]
    return "".join(parts)


def _run_rows(runs: Sequence[Figures]) -> Iterable[list[str]]:
    def row(title: str, value: Callable[[Figures], int | None]) -> list[str]:
        found = [value(run) for run in runs]
        return [title, *("–" if each is None else f"{each:,}" for each in found)]

    yield row("clusters, one after the other", lambda run: run.get("parts", 1))
    yield row("seconds", lambda run: run["duration_s"])
    for outcome in ("ok", "fail", "unknown"):
        yield row(f"puts: {outcome}", lambda run, key=outcome: run["puts"][key])  # type: ignore[misc]
    yield row("messages in the log", lambda run: run["messages"])
    yield row("with a key or headers", lambda run: run.get("with_key_or_headers", 0))
    yield row("messages read", lambda run: run["reads"])
    yield row("scans to the end", lambda run: run["scans"])
    yield row("messages delivered", lambda run: run["deliveries"])
    yield row("messages consumed by a group", lambda run: run["consumed"])
    yield row("messages published by way of hubs", lambda run: run.get("published", 0))
    yield row("messages given to their subscribers", lambda run: run.get("listened", 0))
    yield row("messages given to share consumers", lambda run: run.get("shared"))
    yield row("faults", lambda run: sum(run["faults"].values()))
    for kind in ALL_KINDS:
        yield row(f"**{kind}**", lambda run, key=kind: run["violations"].get(key))  # type: ignore[misc]


def _fault_rows(runs: Sequence[Figures]) -> Iterable[list[str]]:
    for kind in FAULTS:
        cells = []
        for run in runs:
            count, stall_s = run["faults"].get(kind, 0), run["longest_stall_s"].get(kind)
            cells.append(f"{count} ({stall_s} s)" if stall_s is not None else str(count))
        yield [f"`{kind}`", *cells]


def _fuzz_rows(fuzzed: Figures) -> Iterable[list[str]]:
    for name, of in fuzzed["targets"].items():
        yield [f"`{name}`", f"{of['executions']:,}", str(of["findings"])]


def _violation_rows() -> Iterable[list[str]]:
    return [[f"`{kind}`", text] for kind, text in ALL_KINDS.items()]


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def main(
    folders: Annotated[list[Path], typer.Argument(help="Of the runs' reports.")],
    fuzz: Annotated[
        Path | None, typer.Option(help="The figures of a run of the fuzzer, if there is a new one.")
    ] = None,
    docs: Annotated[Path, typer.Option(help="Where the page goes.")] = DOCS,
    *,
    add: Annotated[
        bool, typer.Option("--add", help="Keep the page's runs, and its picture.")
    ] = False,
) -> None:
    """Write the page, and copy the first run's picture beside it unless runs are added."""
    path = docs / "reliability.md"
    before = path.read_text()
    reported = [json.loads((folder / "figures.json").read_text()) for folder in folders]
    try:
        runs = whole_runs(reported)
    except PartsError as exc:
        raise typer.BadParameter(str(exc)) from exc
    if add:
        seeds = {run["seed"] for run in runs}
        kept = runs_on(before)
        runs = [*(run for run in kept if run["seed"] not in seeds), *runs]
    seed = runs[0]["seed"]
    if not add:
        pictured = next(f for f, run in zip(folders, reported, strict=True) if run["seed"] == seed)
        shutil.copy(pictured / "timeline.png", docs / f"reliability-seed-{seed}.png")
    fuzzed = json.loads(fuzz.read_text()) if fuzz else fuzzed_on(before)
    path.write_text(page(runs, seed, fuzzed))


if __name__ == "__main__":
    typer.run(main)
