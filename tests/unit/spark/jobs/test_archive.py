"""Which archives are refused before Spark is asked."""

from __future__ import annotations

from typing import cast

import pytest
from pyspark.sql import SparkSession

from hqueue.errors import InvalidInputError
from pyspark_hqueue.jobs.archive import Archive
from pyspark_hqueue.jobs.parquet_options import ParquetOptions


@pytest.mark.parametrize("output_format", ["delta", "iceberg"])
def test_the_sizes_of_a_table_s_files_are_the_table_s_own(output_format: str) -> None:
    with pytest.raises(InvalidInputError, match="leave both sizes out, and set the table's"):
        Archive(
            cast(SparkSession, None), "events", "lake.db.events",
            output_format=output_format, checkpoint="/checkpoint",
            parquet=ParquetOptions(target_file_size_bytes=1_000_000),
        )  # fmt: skip
