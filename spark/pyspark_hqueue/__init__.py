"""HQueue in Spark: ``spark.read.format("hqueue").option("queue", "events").load()``.

Spark imports every package whose name begins with ``pyspark_`` to look for a `DefaultSource`, and a
package that fails disables all of them. So this module imports only PySpark at first, and
everything else when it is needed.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType

    from pyspark_hqueue.reading.group_read import read_group
    from pyspark_hqueue.reading.lag import LagListener, StreamLag
    from pyspark_hqueue.reading.located import foreach_batch, read

__all__ = ["DefaultSource", "LagListener", "StreamLag", "foreach_batch", "read", "read_group"]

_MODULES = {
    "LagListener": "lag",
    "StreamLag": "lag",
    "foreach_batch": "located",
    "read": "located",
    "read_group": "group_read",
}


class DefaultSource(DataSource):
    """The data source ``hqueue``. Spark finds it by itself."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)

    @classmethod
    def name(cls) -> str:
        """The format's name in Spark: ``spark.read.format("hqueue")``."""
        return "hqueue"

    def schema(self) -> StructType:
        """The columns of the messages that the options choose."""
        from pyspark_hqueue.reading.source import schema_of  # noqa: PLC0415

        return schema_of(self.options)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Make the reader of one query over the messages that are there."""
        from pyspark_hqueue.reading.source import batch_reader  # noqa: PLC0415

        return batch_reader(self.options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """Make the reader of a streaming query."""
        from pyspark_hqueue.reading.stream import stream_reader  # noqa: PLC0415

        return stream_reader(self.options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Make the writer of a data frame's rows, each of which becomes a message."""
        from pyspark_hqueue.writing.sink import batch_writer  # noqa: PLC0415

        return batch_writer(self.options, schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        """Make the writer of a streaming query's rows, each of which becomes a message."""
        from pyspark_hqueue.writing.sink import stream_writer  # noqa: PLC0415

        return stream_writer(self.options, schema, overwrite=overwrite)


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        import importlib  # noqa: PLC0415

        return getattr(importlib.import_module(f"pyspark_hqueue.reading.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
