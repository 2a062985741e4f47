"""What processes write down is read back as it was, also from one that was killed."""

from __future__ import annotations

from pathlib import Path

from .history import Put, Recorder, is_under_way, load


def test_a_history_is_read_as_it_was_written(tmp_path: Path) -> None:
    producer = Recorder(tmp_path / "p.producer.jsonl")
    for number, partition in enumerate((0, None, 1)):
        producer.invoke(Put("p", number, [f"p-{number}"], partition, 0.0))
    producer.complete(0, "ok", [7])
    producer.complete(2, "fail", [], "why")
    for name in ("r", "last"):
        reader = Recorder(tmp_path / f"{name}.reader.jsonl")
        reader.view({0: 0, 1: 5})
        reader.read([(0, 7, "p-0")])
        reader.ended(1.0)
        reader.view({0: 7})
    reader.broken("a row")

    history = load(tmp_path, "last", {0: 1}, ["another row"])
    assert [(p.outcome, p.ids, p.partition, p.error) for p in history.puts] == [
        ("ok", [7], 0, ""),
        ("unknown", [], None, ""),
        ("fail", [], 1, "why"),
    ]
    assert [(v.reader, v.starts, len(v.reads)) for v in history.views] == [
        ("r", {0: 0, 1: 5}, 1),
        ("r", {0: 7}, 0),
    ]
    assert [(p.began_s, p.reads) for p in history.views[0].passes] == [(1.0, 1)]
    assert [read.token for read in history.final[0]] == ["p-0"]
    assert history.findings == ["another row", "last: a row"]


def test_a_put_that_was_cut_off_is_unknown(tmp_path: Path) -> None:
    path = tmp_path / "p.producer.jsonl"
    producer = Recorder(path)
    producer.invoke(Put("p", 0, ["p-0"], 0, 0.0))
    assert is_under_way(path)
    producer.complete(0, "ok", [7])
    assert not is_under_way(path)
    producer.invoke(Put("p", 1, ["p-1"], 0, 0.0))
    with path.open("a") as file:
        file.write('["complete",1,"o')
    assert [put.outcome for put in load(tmp_path, "", {}).puts] == ["ok", "unknown"]
