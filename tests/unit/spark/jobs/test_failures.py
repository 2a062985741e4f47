"""What users see of an error of Spark's."""

from __future__ import annotations

import pytest

from hqueue import Outcome
from pyspark_hqueue.jobs.failures import first_line, table_conflict

DELTA = "io.delta.exceptions."
ICEBERG = "org.apache.iceberg.exceptions."


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "[DELTA_CONCURRENT_TRANSACTION] ConcurrentTransactionException: This error occurs when "
            "multiple streaming queries are using the same checkpoint to write into this table.",
            "another run with the same checkpoint has written to the Delta table",
        ),
        (
            "[DELTA_METADATA_CHANGED] MetadataChangedException: The metadata of the Delta table t "
            "has been changed by a concurrent update.",
            "another program changed the Delta table",
        ),
        (
            "[DELTA_CONCURRENT_DELETE_READ.WITHOUT_HINT] Transaction conflict detected, a "
            "concurrent DELETE deleted data from table t",
            "another program changed the Delta table",
        ),
        (f"{DELTA}ProtocolChangedException: by another", "another program changed the Delta table"),
        (
            f"{ICEBERG}CommitFailedException: Version 7 already exists: /lake/v7.metadata.json",
            "another program changed the Iceberg table",
        ),
        (
            "An error occurred while calling o1.collectToPython.\n: "
            f"{ICEBERG}CherrypickAncestorCommitException: Cannot cherrypick snapshot 3",
            "another program changed the Iceberg table",
        ),
    ],
)
def test_a_commit_that_came_between_is_named_with_what_to_do(text: str, says: str) -> None:
    found = table_conflict(text)
    assert found is not None
    assert str(found).startswith(says)
    assert "start" in str(found).splitlines()[0]
    assert found.outcome is Outcome.NOT_APPLIED


def test_the_outcome_of_a_commit_without_an_answer_is_unknown() -> None:
    found = table_conflict(f"{ICEBERG}CommitStateUnknownException: Cannot determine whether it is")
    assert found is not None
    assert found.outcome is Outcome.UNKNOWN
    assert "the Iceberg catalog did not answer" in str(found)


@pytest.mark.parametrize(
    "text",
    [
        "[DELTA_TABLE_NOT_FOUND] Delta table `t` doesn't exist.",
        "[DELTA_SCHEMA_CHANGED] Detected schema change",
        f"{ICEBERG}NoSuchTableException: Table does not exist: db.t",
        "CommitFailedError: others have these partitions now",
    ],
)
def test_other_errors_are_no_conflicts(text: str) -> None:
    assert table_conflict(text) is None


@pytest.mark.parametrize(
    ("text", "first"),
    [
        (
            "[TABLE_OR_VIEW_NOT_FOUND] no table\nJVM stacktrace:\n…",
            "[TABLE_OR_VIEW_NOT_FOUND] no table",
        ),
        (
            "An error occurred while calling o57.append.\n: java.io.IOException: full\n\tat x",
            "java.io.IOException: full",
        ),
        ("\n  ", "unknown"),
    ],
)
def test_the_first_line_is_the_cause_s(text: str, first: str) -> None:
    assert first_line(text) == first
