"""How large messages are, as Spark counts it."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812

__all__ = ["message_bytes"]


def message_bytes() -> Column:
    """The bytes of a row's value, key and headers, as `hqueue.Message.size`."""
    headers = F.aggregate(
        "headers",
        F.lit(0),
        lambda size, header: size + F.octet_length(header["key"]) + F.length(header["value"]),
    )
    key = F.length("key")
    return F.length("value") + F.coalesce(key, F.lit(0)) + F.coalesce(headers, F.lit(0))
