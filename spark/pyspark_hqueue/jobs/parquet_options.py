"""How the Parquet files of an archive are written: their times, their sizes, their order."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from hqueue.errors import InvalidInputError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["ROW_GROUP_SIZE_BYTES", "TARGET_FILE_SIZE_BYTES", "ParquetOptions", "sorted_rows"]

TARGET_FILE_SIZE_BYTES = 128 * 1024 * 1024
ROW_GROUP_SIZE_BYTES = 32 * 1024 * 1024
_LEAST_BYTES = 64 * 1024


@dataclasses.dataclass(frozen=True)
class ParquetOptions:
    """How files are written.

    Args:
        target_file_size_bytes: the size that files should have. A folder's last file is smaller,
            and so are all files of a folder that gets less in a round. Spark goes by the size of
            what it shuffles, which is about that of the files.
        row_group_size_bytes: the size that row groups should have. Readers skip whole row groups,
            by their minimum and maximum times and IDs.

    Raises:
        InvalidInputError: a size is less than 64 KiB.
    """

    target_file_size_bytes: int = TARGET_FILE_SIZE_BYTES
    row_group_size_bytes: int = ROW_GROUP_SIZE_BYTES

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            size = getattr(self, field.name)
            if size < _LEAST_BYTES:
                raise InvalidInputError(
                    f"the size must be at least {_LEAST_BYTES} bytes", option=field.name, bytes=size
                )

    def session(self, spark: SparkSession) -> SparkSession:
        """A session like this one, whose files are written so. The given one stays as it is.

        Times are microseconds of UTC that say so and have statistics: by default Spark writes them
        as INT96, which has neither. A file that is missing or damaged is an error, whatever the
        given session does with such files.
        """
        settings = {
            "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
            "spark.sql.adaptive.advisoryPartitionSizeInBytes": str(self.target_file_size_bytes),
            "spark.sql.files.ignoreCorruptFiles": "false",
            "spark.sql.files.ignoreMissingFiles": "false",
        }
        from pyspark_hqueue.jobs.sessions import separate_session  # noqa: PLC0415  (needs PySpark)

        return separate_session(spark, settings)

    def write(self, frame: DataFrame, uri: str, by: tuple[str, ...]) -> None:
        """Write a frame of such a session into a new folder.

        Args:
            frame: its rows are sorted by `by` in each of Spark's partitions.
            uri: the folder.
            by: the columns that become folders.
        """
        writer = frame.write.partitionBy(*by)
        writer.option("parquet.block.size", self.row_group_size_bytes).parquet(uri)


def sorted_rows(frame: DataFrame, by: tuple[str, ...]) -> DataFrame:
    """Rows by folder, then time, then partition.

    So a row group has a short time, and a reader that filters by time or ID skips the others. The
    messages of a partition keep their order.
    """
    return frame.sortWithinPartitions(*by, "id", "partition")
