"""``python -m tests.bench.topics``: measure how the cost of hubs grows with the number of topics.

Three hubs own topics that have a subscriber each. What they take to make them is measured, and
while nothing happens; and how long it takes until the topics of a hub that was killed are served by
the others, when they are called for.
"""

from __future__ import annotations

import dataclasses
import json
import signal
import sys
from pathlib import Path
from typing import Annotated

import typer

from ..report import write_part
from ..server import fresh_server
from .growth import STORES, Figures, measure
from .page import COMMAND, PICTURE, draw, part

COUNTS = (1_000, 10_000, 100_000)
DOCS = Path(__file__).parents[3] / "docs"
PAGE = "hub-costs.md"


def main(
    topics: Annotated[list[int] | None, typer.Option(help="How many; once for each.")] = None,
    stores: Annotated[list[str] | None, typer.Argument(help="zookeeper, hbase; or both.")] = None,
    folder: Annotated[
        Path | None, typer.Option(help="For the page; docs/ if both stores run with all counts.")
    ] = None,
) -> None:
    """Measure, each store on a server of its own. The figures go into docs/hub-costs.md."""
    chosen, counts = stores or STORES, topics or COUNTS
    for store in chosen:
        if store not in STORES:
            raise typer.BadParameter(f"{store}: the stores are {', '.join(STORES)}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # So that the servers are ended.
    if folder is None and not stores and not topics:
        folder = DOCS
    found: list[Figures] = []
    for store in chosen:
        with fresh_server() as server:
            for count in counts:
                found.append(measure(server, store, count))
                print(json.dumps(dataclasses.asdict(found[-1])), flush=True)
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        draw(found, folder / PICTURE)
        write_part(folder, COMMAND, part(found), page=PAGE)


if __name__ == "__main__":
    typer.run(main)
