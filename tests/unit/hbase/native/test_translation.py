"""What a region server's failure to read a file means to its caller."""

from __future__ import annotations

import pytest

from hqueue.errors import RequestRefusedError, RowsUnreadableError, StoreUnavailableError
from hqueue.hbase.native.translation import translate_answer
from hqueue.hbase.native.wire import RemoteError

TRACE = (
    "java.lang.IllegalStateException: Invalid klen 536870944 or vlen 76.\n"
    "\tat org.apache.hadoop.hbase.io.hfile.HFileReaderImpl$HFileScannerImpl.blockSeek(X.java:555)"
)
CORRUPT = "org.apache.hadoop.hbase.io.hfile.CorruptHFileException"


@pytest.mark.parametrize(
    ("kind", "text", "final"),
    [
        ("java.io.IOException", TRACE, False),
        (
            "java.io.IOException",
            "Could not iterate StoreFileScanner[HFileScanner for reader]\n"
            "\tat org.apache.hadoop.hbase.regionserver.StoreFileScanner.next(X.java:1)",
            False,
        ),
        (CORRUPT, f"{CORRUPT}: Problem reading data index", True),
    ],
)
def test_files_that_cant_be_read_are_asked_for_again(kind: str, text: str, final: bool) -> None:
    error = translate_answer(RemoteError(kind, text, final), "q", "Scan", "s:1")
    assert type(error) is RowsUnreadableError
    assert str(error.facts["answer"]).endswith(text.splitlines()[0])


def test_other_failures_say_nothing_of_files() -> None:
    busy = RemoteError("java.io.IOException", "Call queue is full\n\tat o.a.h.h.ipc.X", False)
    assert type(translate_answer(busy, "q", "Scan", "s:1")) is StoreUnavailableError
    refused = RemoteError("o.a.h.h.DoNotRetryIOException", "no\n\tat o.a.h.h.ipc.X", True)
    assert type(translate_answer(refused, "q", "Scan", "s:1")) is RequestRefusedError
