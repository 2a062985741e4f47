"""The program of docs/spark-values.md, block after block."""

from __future__ import annotations

import datetime
import re
import sys
from pathlib import Path

import pytest
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from pyspark.sql import DataFrame, SparkSession

import hqueue
from hqueue import Message
from hqueue.local.jars import JarSet, ensure_jars

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
AVRO = JarSet(
    "Spark's Avro functions",
    (ROOT / "tests" / "support" / "spark-avro-pom.xml").read_bytes(),
    ("spark-avro_2.13",),
    1,
)
PROTOC_WRITES = """
from google.protobuf.descriptor_pool import Default
from google.protobuf.message_factory import GetMessageClass
Order = GetMessageClass(Default().AddSerializedFile({!r}).message_types_by_name["Order"])
"""
"""What `protoc` writes, in short."""


def proto() -> bytes:
    """``message Order { string user = 1; double amount = 2; }``, described."""
    file = FileDescriptorProto(name="orders.proto", syntax="proto3")
    order = file.message_type.add(name="Order")
    for number, (name, kind) in enumerate(
        [("user", FieldDescriptorProto.TYPE_STRING), ("amount", FieldDescriptorProto.TYPE_DOUBLE)],
        1,
    ):
        optional = FieldDescriptorProto.LABEL_OPTIONAL
        order.field.add(name=name, number=number, type=kind, label=optional)
    return file.SerializeToString()


def rows(frame: DataFrame, *columns: str) -> list[tuple[object, ...]]:
    return sorted(tuple(row) for row in frame.select(*columns).collect())


@pytest.mark.pyspark("4.2")
def test_the_values_of_the_page_come_back(
    client: hqueue.Client, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocks = BLOCK.findall((ROOT / "docs" / "spark-values.md").read_text(encoding="utf-8"))
    (jar,) = ensure_jars(AVRO).glob("*.jar")
    spark.sql(f"ADD JAR '{jar}'")
    module = tmp_path / "orders_pb2.py"
    module.write_text(PROTOC_WRITES.format(proto()))
    program = "\n".join(blocks).replace('"orders_pb2.py"', repr(str(module)))
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    context = spark.sparkContext  # It is other tests', too, which add no file.
    monkeypatch.setattr(context, "_python_includes", [*(context._python_includes or ())])
    queue = client.create_queue("orders", partitions=2)
    try:
        import orders_pb2  # type: ignore[import-not-found]  # noqa: PLC0415

        order = orders_pb2.Order(user="ann", amount=12.5)
        queue.put(Message("protobuf", order.SerializeToString()))
        page: dict[str, DataFrame] = {}
        exec(program, page)
        ann, bob = ("ann", 12.5), ("bob", 3.0)
        assert rows(page["readable"], "user", "amount") == [ann]
        unreadable = page["json_orders"].where("unreadable is not null")
        assert rows(unreadable, "unreadable") == [('{"user": ',)]
        assert [m.value for m in queue.scan() if m.topic == "again"] == [
            b'{"user":"ann","amount":12.5}'
        ]
        assert rows(page["avro_orders"], "*") == [ann, bob]
        assert rows(page["protobuf_orders"], "*") == [ann]
        names = {row.name: row.key for row in page["names_again"].collect()}
        assert names == {"ann": b"a", "bob": None}
        table = {row.user: (row.amount, row.at) for row in page["table_again"].collect()}
        at = datetime.datetime(2026, 1, 31, 12, tzinfo=datetime.timezone.utc)
        assert {user: amount for user, (amount, _) in table.items()} == {"ann": 12.5, "bob": None}
        assert {found.astimezone(datetime.timezone.utc) for _, found in table.values()} == {at}
    finally:
        client.delete_queue("orders", force=True)
