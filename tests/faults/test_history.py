"""What processes write down is read back as it was, also from one that was killed."""

from __future__ import annotations

from pathlib import Path

from .aiming import is_under_way
from .group_history import CLAIM, COMMIT, GroupRecorder, load_group, owners
from .history import Put, Recorder, load


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


def test_offsets_are_put_together_with_what_became_of_them(tmp_path: Path) -> None:
    first = GroupRecorder(tmp_path / "one.consumer.jsonl")
    other = GroupRecorder(tmp_path / "two.consumer.jsonl")
    first.trying(0, "a", CLAIM, {3: (0, None), 4: (0, None)})
    first.written(0, {3: 1, 4: 1})
    first.handed("a", 1, 5.0, [(3, 7, "m7")])
    other.trying(0, "b", CLAIM, {3: (0, None)})
    other.written(0, {3: 2})
    first.trying(1, "a", COMMIT, {3: (8, 1), 4: (9, 1)})
    first.written(1, {4: 2})
    other.trying(1, "b", COMMIT, {3: (9, 2)})
    history = load_group(tmp_path)
    assert owners(tmp_path) == {3: "two", 4: "one"}
    (handed,) = history.handed
    assert (handed.process, handed.partition, handed.messages) == ("one", 3, [(7, "m7")])
    commits = [w for w in history.writes if w.kind == COMMIT]
    assert [(w.consumer, w.partition, w.claim, w.outcome, w.version) for w in commits] == [
        ("a", 3, 1, "fail", None),
        ("a", 4, 1, "ok", 2),
        ("b", 3, 2, "unknown", None),
    ]
