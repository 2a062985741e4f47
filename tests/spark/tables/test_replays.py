"""Replays of tables: each message once, in the order of the IDs."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import hqueue
from hqueue import InvalidInputError
from pyspark_hqueue.jobs.replay import Replay
from pyspark_hqueue.jobs.table_replay import TableReplay

from ..test_pipelines import CutOff, Make, fill, values
from .archiving import Archiving, fail, new_table

pytestmark = pytest.mark.tables


def replayed(queue: hqueue.Queue) -> list[tuple[str, bytes]]:
    return sorted(message for messages in values(queue).values() for message in messages)


def test_a_table_is_replayed_in_order_and_goes_on(
    archiving: Archiving, make_queue: Make, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    target = make_queue(2)

    def job(**arguments: object) -> TableReplay:
        given = {"options": archiving.connection, **arguments}
        return TableReplay(
            archiving.spark, archiving.table, archiving.output_format, target.name,
            str(tmp_path / "replay"), **given,  # type: ignore[arg-type]
        )  # fmt: skip

    fill(archiving.queue, 20)
    archiving.run()
    assert sum(piece.messages for piece in job().pending()) == 40
    assert not (tmp_path / "replay").exists()

    # The piece is written, and then nobody hears of it: the table gets more meanwhile.
    claim = hqueue.Queue.claim_epoch
    monkeypatch.setattr(hqueue.Queue, "claim_epoch", fail)
    with pytest.raises(CutOff):
        job().run()
    monkeypatch.setattr(hqueue.Queue, "claim_epoch", claim)
    wanted = values(archiving.queue)
    assert values(target) == wanted
    fill(archiving.queue, 5, first=20)
    archiving.run()
    assert [piece.messages for piece in job().pending()] == [40, 10]
    if archiving.output_format == "delta":
        archiving.spark.sql(f"OPTIMIZE {archiving.table}")
    else:
        archiving.spark.sql(
            "CALL lake.system.rewrite_data_files("
            f"table => '{archiving.table}', options => map('rewrite-all', 'true'))"
        )
    assert job().run() == 50
    assert values(target) == values(archiving.queue)
    assert job().run() == 0
    assert values(target) == values(archiving.queue)
    with pytest.raises(InvalidInputError, match="another replay"):
        job(topics=["a"])


def test_what_of_a_table_is_replayed_can_be_chosen(
    archiving: Archiving, make_queue: Make, tmp_path: Path
) -> None:
    target = make_queue(1)
    fill(archiving.queue, 20)
    archiving.run()
    ids = sorted(message.id for message in archiving.queue.scan())
    TableReplay(
        archiving.spark, archiving.table, archiving.output_format, target.name,
        str(tmp_path / "replay"), topics=["a"], topic="z", start=ids[5], stop=ids[30],
        options=archiving.connection,
    ).run()  # fmt: skip
    wanted = [
        ("z", message.value)
        for message in archiving.queue.scan()
        if message.topic == "a" and ids[5] <= message.id < ids[30]
    ]
    assert replayed(target) == sorted(wanted)


def test_what_is_no_archive_is_not_replayed(
    spark: SparkSession, connection: dict[str, str], make_queue: Make, output_format: str,
    tmp_path: Path,
) -> None:  # fmt: skip
    queue, table = make_queue(1), new_table(output_format)

    def job(name: str) -> TableReplay:
        return TableReplay(
            spark, name, output_format, queue.name, str(tmp_path / "r"), options=connection
        )

    with pytest.raises(InvalidInputError, match="check its name"):
        job(table)
    spark.sql(f"CREATE TABLE {table} (id bigint, value string) USING {output_format}")
    with pytest.raises(InvalidInputError, match="not an archive") as caught:
        job(table)
    assert "value is string, not binary" in str(caught.value)
    if output_format == "delta":
        path = str(tmp_path / "path")
        spark.range(3).selectExpr("'a' topic", "string(id) value").write.format("delta").save(path)
        with pytest.raises(InvalidInputError, match="--format delta"):
            Replay(spark, path, queue.name, options=connection)
