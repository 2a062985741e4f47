"""Records of one kind as objects, by a watch that reads only what changed."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from hqueue.errors import UnsupportedFormatError
from hqueue.metadata.directory import Directory
from hqueue.metadata.ports import ANY, Change, Record
from tests.support.memory.metadata import MemoryServer
from tests.support.waiting import wait_for

COUNT = 50


class Decoder:
    def __init__(self) -> None:
        self.read: list[str] = []

    def __call__(self, key: str, found: Mapping[str, Record]) -> tuple[str, bytes]:
        self.read.append(key)
        if found[key].value == b"wrong":
            raise UnsupportedFormatError("this is not a record", path=key)
        return key, found[key].value


@pytest.mark.parametrize("alone", [True, False])
def test_a_watch_gives_the_whole_and_reads_again_what_changed(alone: bool) -> None:
    store = MemoryServer().open()
    keys = [f"/top/{number}" for number in range(COUNT)]
    store.records.create(dict.fromkeys(keys, b"1"))
    decoder, told = Decoder(), list[dict[str, bytes]]()
    watch = Directory(store, "/top", 1, decoder, "a record", alone=alone).watch(told.append)
    wait_for(lambda: told, "the first view")
    assert told[-1] == dict.fromkeys(keys, b"1")
    assert len(decoder.read) == COUNT
    decoder.read.clear()
    store.records.write({keys[7]: Change(b"2", ANY)})
    wait_for(lambda: told[-1][keys[7]] == b"2", "the change")
    assert len(told[-1]) == COUNT
    assert decoder.read == ([keys[7]] if alone else sorted(keys))
    store.records.write({keys[7]: Change(b"wrong", ANY)})
    wait_for(lambda: keys[7] not in told[-1], "it is left out")
    store.records.delete({keys[8]: ANY})
    wait_for(lambda: len(told[-1]) == COUNT - 2, "another is gone")
    store.records.create({keys[8]: b"3"})
    wait_for(lambda: told[-1].get(keys[8]) == b"3", "it is back")
    watch.close()
    store.close()
