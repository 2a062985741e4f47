"""A master for tests: carries out all procedures at once, or fails as a test says."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from hqueue.hbase.native.protocol import pb
from hqueue.hbase.native.table_schema import family, table_schema
from hqueue.hbase.schema import LOG, MESSAGE
from hqueue.hbase.table_attributes import FIXED_ATTRIBUTES, PARTITIONS
from tests.support.scripted_server import Asked, answer, refusal

__all__ = ["LOST", "ScriptedMaster"]

LOST = "lost"
"""Instead of an error's name: the connection ends without an answer."""

_KINDS = {
    "GetTableDescriptors": pb.GetTableDescriptorsResponse,
    "getProcedureResult": pb.GetProcedureResultResponse,
}


@dataclasses.dataclass
class ScriptedMaster:
    """Knows one queue; it is the script of a `ScriptedServer`.

    Args:
        queue: the queue's name.
        fails: for each method the errors of its first calls, by their names; None for those that
            succeed. The last one is that of all further calls.
        result: the error that procedures end with.
        is_queue: whether the table is one.
    """

    queue: str
    fails: Mapping[str, Sequence[str | None]] = dataclasses.field(default_factory=dict)
    result: str | None = None
    is_queue: bool = True

    def __post_init__(self) -> None:
        self.asked: list[Asked] = []

    @property
    def methods(self) -> list[str]:
        """What was called."""
        return [each.method for each in self.asked]

    def __call__(self, asked: Asked) -> list[bytes]:
        fails = self.fails.get(asked.method, (None,))
        failure = fails[min(self.methods.count(asked.method), len(fails) - 1)]
        self.asked.append(asked)
        if failure == LOST:
            raise ConnectionResetError
        if failure is not None:
            return [refusal(asked, failure, final=True)]
        kind = _KINDS.get(asked.method)
        message: Any = pb.CreateTableResponse(proc_id=1) if kind is None else kind()
        if asked.method == "GetTableDescriptors":
            message.table_schema.append(self._schema())
        elif asked.method == "getProcedureResult":
            message.state = pb.GetProcedureResultResponse.FINISHED
            if self.result is not None:
                message.exception.generic_exception.class_name = self.result
        return [answer(asked, message)]

    def _schema(self) -> Any:
        attributes = {**FIXED_ATTRIBUTES, PARTITIONS: b"1"} if self.is_queue else {}
        return table_schema(self.queue, attributes, [family(MESSAGE, {}), family(LOG, {})])
