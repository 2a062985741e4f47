"""``python -m tests.faults.page FOLDER… --fuzz FILE --strangers FILE``: write docs/reliability.md
from reports.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from .report import ALL_KINDS
from .schedule import FAULTS

__all__ = ["page"]

DOCS = Path(__file__).parents[2] / "docs"

Figures = dict[str, Any]

_HEAD = """\
# Reliability

What the queue promises while servers die ([guarantees.md](guarantees.md)), and how often that was
tried. This page is written by `python -m tests.faults.page` from the figures of the runs.

**Promised:** a message whose put was acknowledged is read exactly once, in the order of the IDs
that the puts returned; one whose put failed is never read; one whose outcome is unknown at most
once; every reader sees the same order, and none a message appear behind it. The same holds for each
topic that hubs own, whichever owns it: what has a sequence number is there once, and its
subscribers get all of it, in order, from their cursors on.

{verdict}

## The runs

"""

_HOW = """
![seed {seed}](reliability-seed-{seed}.png)

## How it is tried

A real cluster on one machine (`hqueue local start --profile cluster`): ZooKeeper, a name node,
three data nodes, a master, three region servers, each a process of its own; where HBase is spoken
to over gateways three pairs of them, too. Six producers (processes: single puts, batches, keyed, to
any partition, one that writes on when its clock is wrong, one with `Producer`) and three readers
(scans that go on from one another, scans from the middle, a follower) use a queue of six partitions
through TCP proxies, which stand before the region servers, or before the gateways; two workers
deliver it to two subscribers; one of them asks for some messages again. Three consumers of a group
share it (one polls and commits now and then; one iterates, and leaves commits to its consumer; one
commits beside what it does, leaves and comes back). Half of the puts are messages with keys and
headers of all kinds; in the others there are none, so that batches of both formats lie beside one
another. All the time a stranger tells the workers of batches that nobody put.

Beside it three hubs own six topics of a second queue. Four publishers (two publish what comes,
once; two give sequence numbers, and call again until it is there, also when they were killed and
restarted) and two subscribers (one consumes by what it answers, one says itself what is
consumed) know nothing but the hubs' addresses. A put gives up after
20 s and a request after 5 s, which is less than a recovery may take: so all three outcomes are met.

Each process writes down what it tries before it tries it, and what came of it: **ok**, **fail**
(not applied) or **unknown**. With a message's name it writes a digest of topic, value, key and
headers: one that came back with others is none that was put. Then the producers end, the readers
read on to the end, and one last reader reads everything, while the log's links, ordinals and
checksums are checked. From these
histories alone the checkers ([checker.py](../tests/faults/checker.py) for the log,
[delivery_checker.py](../tests/faults/delivery_checker.py) for push,
[group_checker.py](../tests/faults/group_checker.py) for the group,
[topic_checker.py](../tests/faults/topic_checker.py) for hubs) look for:

"""

_FAULTS = """
Each of these is planted into a right history in
[test_checker.py](../tests/faults/test_checker.py),
[test_delivery_checker.py](../tests/faults/test_delivery_checker.py),
[test_group_checker.py](../tests/faults/test_group_checker.py) and
[test_topic_checker.py](../tests/faults/test_topic_checker.py), and must be found.

A consumer writes down what it is handed, and each take-over and commit before it is tried and with
the version that it gave the group's offset. These versions say in which order all of them counted,
whatever a process that stood still believes. So every message that was acknowledged was handed to
somebody; nobody passed one by, or committed one that he was not handed; what came again lay after
the last commit; and no commit, and no message, came from one whose partition others had.
[test_consumer_processes.py](../tests/integration/test_consumer_processes.py) holds 50 consumers in
ten processes to the same.

A subscriber of hubs writes down where each hub said that its subscription is, and all the time the
stored cursors are looked at. So no subscription began below a cursor that had been stored, each
got all messages of its topic from its first cursor on, in their order, and none again that lay at
or below a cursor stored long before. The messages of publishers that give sequence numbers lie in
their topics as these count up, without a gap and none twice, however often they were killed. What
was first tried when another message was known to be there lies behind that, whichever publisher it
was.
[test_hub_restart.py](../tests/integration/test_hub_restart.py) kills a hub that owns 30,000 topics,
and starts ZooKeeper again after it.

## What each fault does

"""

_RUN = """
`kill-gateway` and `pause-gateway` come only over gateways (`--hbase gateways`); without it the
suite speaks HBase's own RPC, as a library without `gateways` does, and its proxies know each
request by its number: what one request meets does not depend on the others of its connection,
unless the connection is cut. Requests to the master go past the proxies. What the suite itself asks
of region servers (where `hbase:meta` is, compactions) it asks natively, past the proxies.

At most one fault of the servers, one of the producers, one of the workers and subscribers, one of
the consumers and one of the hubs and whom they serve is under way at a time. The schedule is drawn
from the seed alone; all kinds come once before any comes twice. A fault that did not work as meant
is not counted, and a run in which some kind never worked counts as failed.

The longest stall is the longest time in which some partition took no put from any producer, while
or just after the fault was under way. The machine has two cores, and beside each of these runs
another of them went on, or other tests did: a cluster alone is back sooner.

While a region server that stood still goes on, and has not learned that its regions were given to
others, HBase lets it answer reads from what it knew. Scans in these moments are not counted as
`stale`; what it means is in [guarantees.md](guarantees.md).

## Bad input

`make fuzz` ([tests/fuzz](../tests/fuzz)) gives damaged and made-up input to all that takes some:
cells, headers and row keys, whole logs of forged rows, answers off the wire, strangers' calls,
settings, texts and command lines. A finding is what ends in anything but an `HQueueError`, takes
10 s or takes 256 MiB. In
{minutes:.0f} minutes (seed {seed}):

"""

_STRANGERS = """
## Strangers at the ports

`python -m tests.strangers` ([tests/strangers](../tests/strangers)), part of `make test-all`,
attacks every port of every role from another process: half calls, drips, thousands of idle
connections, senseless frames, huge promises, deep nesting, texts of 4 MiB, calls of 300,000
structs, connection storms, and answers that nobody reads, all at once. Beside them an honest caller
calls every 20 ms. Each role runs over stores in memory. The same attack goes on at a port of
another process first, which reads and does nothing: what the honest caller waits for then is the
machine, which has two cores for caller, role and strangers. A port gives way if the 99th of 100
calls takes more than 5 times as long as alone, and as beside that attack elsewhere (and as 5 ms),
if the process takes 512 MiB or a core, or logs more than a line a second; in `make test-all`, which
judges no machine, if that call takes a second.

What is left is single steps of C code, which keep Python's lock from all other threads: to read a
text of 4 MiB takes 1 to 3 ms, and to free what 300,000 structs were made of takes 13. Between such
steps a thread gives the lock up five times a millisecond while a large call is read. So a call that
takes 0.8 to 1.5 ms alone takes 6 to 12 ms beside this attack: 4 to 9 times as long. In
{seconds:.0f} s:

"""

_FOUND = """
## What it found

- Such an answer could make an append believe that its slot was another's, and append again; or that
  its batch was no link of the chain, and take it back. An append now decides by what one server
  says in one answer, and only if that server knows the batch itself. Without a cluster: the fault
  `stale` in [tests/model](../tests/model/scenarios.py).
- A worker's reader was in two hands when several heavy batches came at once: the poller asked for
  them, and meanwhile the scanner read on. A batch was passed by, and the checkpoint went on: its
  message was not delivered. A reader has one user at a time now.
- What a subscriber that had fallen behind still needed was pushed out of its window by a heavy
  batch that came after it. The worker then asked for it without an end, and did nothing else.
  Without a cluster, both: [test_cursor.py](../tests/unit/workers/delivery/test_cursor.py).
- A local server's process counted as ended when its first thread had, with its port still open:
  [tests/unit/local/test_process.py](../tests/unit/local/test_process.py).

## Run it

```
make test-faults                                      # 3 minutes, a random seed, every kind
make test-faults FAULTS='--seed 1 --duration 600'     # a run of the table
make test-faults FAULTS='--faults kill-meta,compact'  # some kinds only
make test-faults FAULTS='--hbase gateways'            # over gateways, not natively
python -m tests.faults --seed 1 --plan                # only show what would happen
make fuzz FUZZ='--seed 1 --duration 600'
python -m tests.strangers --seconds 180
python -m tests.faults.page reports/faults-* --fuzz reports/fuzz-1.json \\
    --strangers reports/strangers.json                # write this page
```

It prints the seed, each fault as it happens, and the verdict; `reports/faults-SEED/` has the
histories, the figures and the picture, and the servers' logs if something was wrong. It ends with 0
if all promises were kept, with 1 if one was broken, with 3 if the run itself failed.
"""


def page(runs: Sequence[Figures], pictured: int, fuzzed: Figures, strangers: Figures) -> str:
    """The page.

    Args:
        runs: the figures of runs with faults.
        pictured: the seed of the one that is shown as a picture.
        fuzzed: the figures of a run of the fuzzer.
        strangers: the figures of the attacks.
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
        _STRANGERS.format(seconds=strangers["seconds"]),
        _table(
            [
                "port",
                "ms alone",
                "ms beside an attack elsewhere",
                "ms attacked",
                "MiB more",
                "cores",
                "lines a second",
                "gave way",
            ],
            _stranger_rows(strangers),
        ),
        _FOUND,
    ]
    return "".join(parts)


def _run_rows(runs: Sequence[Figures]) -> Iterable[list[str]]:
    def row(title: str, value: Callable[[Figures], int]) -> list[str]:
        return [title, *(f"{value(run):,}" for run in runs)]

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
    yield row("faults", lambda run: sum(run["faults"].values()))
    for kind in ALL_KINDS:
        yield row(f"**{kind}**", lambda run, key=kind: run["violations"].get(key, 0))  # type: ignore[misc]


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


def _stranger_rows(strangers: Figures) -> Iterable[list[str]]:
    for name, of in strangers["ports"].items():
        yield [
            name,
            f"{of['alone_p99_ms']:.1f}",
            f"{of['elsewhere_p99_ms']:.1f}",
            f"{of['attacked_p99_ms']:.1f}",
            f"{of['more_bytes'] >> 20}",
            f"{of['cores']:.2f}",
            f"{of['lines_a_second']:.2f}",
            str(len(of["faults"])),
        ]


def _violation_rows() -> Iterable[list[str]]:
    return [[f"`{kind}`", text] for kind, text in ALL_KINDS.items()]


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def main(
    folders: Annotated[list[Path], typer.Argument(help="Of the runs' reports.")],
    fuzz: Annotated[Path, typer.Option(help="The figures of a run of the fuzzer.")],
    strangers: Annotated[Path, typer.Option(help="The figures of the attacks on ports.")],
    docs: Annotated[Path, typer.Option(help="Where the page goes.")] = DOCS,
) -> None:
    """Write the page, and copy the first run's picture beside it."""
    runs = [json.loads((folder / "figures.json").read_text()) for folder in folders]
    seed = runs[0]["seed"]
    shutil.copy(folders[0] / "timeline.png", docs / f"reliability-seed-{seed}.png")
    fuzzed, attacks = (json.loads(path.read_text()) for path in (fuzz, strangers))
    (docs / "reliability.md").write_text(page(runs, seed, fuzzed, attacks))


if __name__ == "__main__":
    typer.run(main)
