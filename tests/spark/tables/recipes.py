"""The programs of `docs/tables.md`, for other queues and tables."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

import hqueue
from pyspark_hqueue.reading.schema import COLUMNS

__all__ = ["Recipe", "statements"]

PAGE = Path(__file__).parents[3] / "docs" / "tables.md"


class Recipe:
    """A program of the page.

    Args:
        name: its first line.
        queue: the queue that it reads.
        table: the table that it writes.
        folder: where its checkpoint is.
    """

    def __init__(self, name: str, queue: hqueue.Queue, table: str, folder: Path) -> None:
        self.name = name
        text = _text(name)
        for written, here in (
            ('("queue", "events")', f'("queue", "{queue.name}")'),
            ('(spark, "events"', f'(spark, "{queue.name}"'),
            ('able("events")', f'able("{table}")'),
            ("lake.db.events", table),
            ("/checkpoints/", f"{folder}/checkpoints/"),
        ):
            text = text.replace(written, here)
        self.text = text

    @property
    def columns(self) -> str:
        """Those of its table, as SQL has them."""
        return ", ".join(f"`{field.name}` {field.dataType.simpleString()}" for field in COLUMNS)

    def run(self, spark: SparkSession) -> None:
        """Run it in this process until it has read what is there."""
        exec(compile(self.text, self.name, "exec"), {"spark": spark})
        for query in spark.streams.active:
            assert query.awaitTermination(120)


def statements(output_format: str, table: str, folder: Path) -> list[str]:
    """The page's SQL that creates a table, for another table.

    Args:
        output_format: the table's format.
        table: its name.
        folder: where a Delta table is.
    """
    text = _text(output_format, "sql", "--").partition("\n")[2]
    here = text.replace("lake.db.events", table).replace("TABLE events", f"TABLE {table}")
    here = here.replace("'/lake/events'", f"'{folder}/lake/events'")
    return [statement for statement in map(str.strip, here.split(";")) if statement]


def _text(name: str, language: str = "python", comment: str = "#") -> str:
    for block in PAGE.read_text().split(f"```{language}\n")[1:]:
        program = block.partition("```")[0]
        if program.startswith((f"{comment} {name}\n", f"{comment} {name};")):
            return program
    raise LookupError(name)
