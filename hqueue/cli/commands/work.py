"""``hqueue work``: runs a command for each message of a queue. Its exit code is the answer."""

from __future__ import annotations

import asyncio
import shutil
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hqueue.cli.commands import shared_options
from hqueue.cli.exits import say
from hqueue.cli.progress import count_text
from hqueue.cli.registering import duration_option
from hqueue.cli.session import session_of
from hqueue.errors import InvalidInputError
from hqueue.position import START_HELP, check_start
from hqueue.runtime.stopping import stopping
from hqueue.texts.shown import printable

if TYPE_CHECKING:
    from hqueue.cli.commands.work_jobs import WorkPlan
    from hqueue.client import Client

__all__ = ["work"]


def work(
    context: typer.Context,
    queue: shared_options.Queue,
    command: Annotated[
        list[str],
        typer.Argument(metavar="-- COMMAND...", help="The program and its arguments."),
    ],
    *,
    group: Annotated[str, typer.Option("--group", "-g", help="The share group's name.")],
    jobs: Annotated[
        int,
        typer.Option("--jobs", "-j", min=1, max=1_000, help="How many processes run at a time."),
    ] = 1,
    lock_ms: Annotated[
        int,
        duration_option(
            "How long other workers wait for a message of a worker that is gone. A process may run "
            "longer, since its worker renews the lock.",
            "--lock",
            low_ms=1_000,
        ),
    ] = 30_000,
    timeout_ms: Annotated[
        int | None,
        duration_option(
            "End a process that runs longer than this; it counts as failed.", "--timeout", low_ms=1
        ),
    ] = None,
    grace_ms: Annotated[
        int,
        duration_option("How long processes may go on after SIGTERM or Ctrl-C.", "--grace"),
    ] = 10_000,
    deliveries_max: Annotated[
        int,
        typer.Option(min=1, help="How often a message may fail before it becomes a dead letter."),
    ] = 5,
    retry_ms: Annotated[
        int,
        duration_option(
            "How long a message waits after its first failure. Each further pause is four times as "
            "long, up to an hour.",
            "--retry-after",
        ),
    ] = 1_000,
    topic: shared_options.Topics = None,
    start: Annotated[
        str,
        typer.Option("--start", help=f"Where a new group begins: {START_HELP}."),
    ] = "earliest",
    ordered_by_key: Annotated[
        bool,
        typer.Option(
            "--ordered-by-key",
            help="Process the messages of a key one after the other. All workers of the group must "
            "use this option.",
        ),
    ] = False,
    limit: shared_options.Limit = None,
    idle_ms: shared_options.Idle = None,
    metrics_port: Annotated[
        int | None,
        typer.Option(
            min=1, max=65_535, help="Serve metrics for Prometheus on this port (extra metrics)."
        ),
    ] = None,
    metrics_host: Annotated[
        str, typer.Option(help="The address on which metrics are served.")
    ] = "127.0.0.1",
) -> None:
    """Run a command for each message of a queue, as one of the workers of a share group.

    The command gets the message's value as its stdin, and in its arguments in the place of {}. No
    shell is run. The environment has MESSAGE_ID, MESSAGE_KEY, MESSAGE_TOPIC, MESSAGE_QUEUE,
    MESSAGE_PARTITION, MESSAGE_TIMESTAMP_MS, MESSAGE_DELIVERIES, and MESSAGE_HEADER_NAME for each
    header.

    The exit code is the answer: after 0 the message is done; after 65 it becomes a dead letter;
    after any other, such as 75, it is delivered again after a pause, to any worker. The end of
    stderr is the dead letter's reason. hqueue dead-letters QUEUE --group GROUP shows dead letters.

    After SIGTERM or Ctrl-C, processes may go on for --grace; then they are ended, and their
    messages are released.
    """
    from hqueue.cli.commands.work_jobs import WorkPlan  # noqa: PLC0415  (not needed for help)
    from hqueue.cli.commands.work_process import Retries  # noqa: PLC0415

    if shutil.which(command[0]) is None:
        raise InvalidInputError(
            "there is no such command, or it can't be run: give a program of the PATH, or a path",
            command=command[0],
        )
    plan = WorkPlan(
        command=command,
        jobs=jobs,
        timeout_ms=timeout_ms,
        grace_ms=grace_ms,
        retries=Retries(deliveries_max, retry_ms),
        ordered_by_key=ordered_by_key,
        limit=limit,
        idle_ms=idle_ms,
    )
    options = {
        "group": group,
        "topics": topic or (),
        "lock_ms": lock_ms,
        "start": check_start(start),
        "ordered_by_key": ordered_by_key,
        "deliveries_max": deliveries_max,
        "auto_acknowledge": False,
        "auto_renew": True,
    }
    pages = metrics_host, metrics_port
    asyncio.run(_work(session_of(context).client, queue, plan, options, pages))


async def _work(
    client: Client,
    queue: str,
    plan: WorkPlan,
    options: dict[str, Any],
    pages: tuple[str, int | None],
) -> None:
    from hqueue.aio import Client as LoopClient  # noqa: PLC0415  (not needed for help)
    from hqueue.aio import ShareConsumer  # noqa: PLC0415
    from hqueue.cli.commands.work_jobs import Jobs  # noqa: PLC0415
    from hqueue.cli.commands.work_metrics import serving_metrics  # noqa: PLC0415

    async with (
        serving_metrics(queue, options["group"], *pages) as metrics,
        ShareConsumer(queue, client=LoopClient(client), **options) as consumer,
    ):
        jobs = Jobs(consumer, plan, metrics)
        with stopping(jobs.request_stop):
            group, consumer_id = printable(consumer.group), printable(consumer.consumer_id)
            how = count_text(plan.jobs, "job")
            say(f"Working on {queue} in {group} as {consumer_id}, with {how} at a time.")
            await jobs.run()
