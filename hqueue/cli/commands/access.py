"""``hqueue access``: which principals may do what."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from hqueue.cli.commands import shared_options
from hqueue.cli.exits import ExitCode, say
from hqueue.cli.output import show_rows
from hqueue.cli.registering import group
from hqueue.cli.session import session_of
from hqueue.errors import InvalidInputError
from hqueue.runtime.only_reads import OnlyReads
from hqueue.settings.loading import ROLES, find_role_setting
from hqueue.settings.names import is_among, names_in

if TYPE_CHECKING:
    from hqueue.metadata.access_rules import AccessRule, AccessRules, Operation

__all__ = ["register"]

PREFIX = "A * at the end stands for any ending."
OPERATIONS = (
    "Operations, separated by commas: create, publish, read, subscribe, consume, unsubscribe, "
    "move, delete, administer; or all."
)

Principal = Annotated[
    str, typer.Argument(metavar="PRINCIPAL", help=f"The principal's name. {PREFIX}")
]
Operations = Annotated[str, typer.Argument(metavar="OPERATIONS", help=OPERATIONS)]
Queue = Annotated[str, typer.Argument(metavar="QUEUE", help=f"The queue's name. {PREFIX}")]
Topic = Annotated[str, typer.Option("--topic", "-t", help=f"Only topics of this name. {PREFIX}")]
Name = Annotated[
    str | None,
    typer.Option(
        "--name",
        help="The publisher's or subscriber's name that the principal may use, even if it belongs "
        f"to another principal. {PREFIX} By default a principal may only use its own names.",
    ),
]


@OnlyReads()
def list_(context: typer.Context, json: shared_options.Json = False) -> None:
    """List the access rules: principal, operations, queue, topic, and name of publishers and
    subscribers.

    Hubs and workers with the setting authorizer = "rules" apply the rules. They refuse operations
    that no rule allows, except to administrators. Without a terminal, tabs separate the columns.
    """
    rules = session_of(context).client.coordination.access_rules.read()
    _show(rules or (), json=json)


def grant(
    context: typer.Context,
    principal: Principal,
    operations: Operations,
    queue: Queue,
    *,
    topic: Topic = "*",
    name: Name = None,
) -> None:
    """Grant operations to principals. Hubs and workers apply the change within seconds."""
    rule = _rule(principal, operations, queue, topic, name)
    _change(context, lambda rules: rules.granted(rule))


def revoke(
    context: typer.Context,
    principal: Principal,
    operations: Operations,
    queue: Queue,
    *,
    topic: Topic = "*",
    name: Name = None,
) -> None:
    """Take back operations that were granted with exactly these arguments. Hubs and workers apply
    the change within seconds.

    Other rules stay, even if they allow the same operations. The exit code is 1 if no rule was
    granted with these arguments.
    """
    rule = _rule(principal, operations, queue, topic, name)
    found = [False]

    def edit(rules: AccessRules) -> AccessRules:
        changed = rules.revoked(rule)
        found[0] = changed != rules
        return changed

    _change(context, edit)
    if not found[0]:
        say("No rule was granted with these arguments: see hqueue access list.")
        raise typer.Exit(ExitCode.FAILED)


@OnlyReads()
def check(
    context: typer.Context,
    principal: Annotated[str, typer.Argument(metavar="PRINCIPAL", help="A principal's name.")],
    operation: Annotated[
        str, typer.Argument(metavar="OPERATION", help="An operation, such as publish.")
    ],
    queue: shared_options.Queue,
    *,
    topic: Annotated[
        str | None,
        typer.Option(
            "--topic", "-t", help="The topic; * for all. By default, one allowed topic is enough."
        ),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option("--name", help="The name of another principal's publisher or subscriber."),
    ] = None,
    json: shared_options.Json = False,
) -> None:
    """Show the rule that allows a principal an operation. The exit code is 1 if no rule does, and
    the principal is not an administrator.

    Administrators, whom the settings of hubs and workers name, need no rule; this command knows
    those in this machine's settings. If the topic has an ACL, the ACL must allow the operation,
    too. The output is that of hqueue access list.
    """
    from hqueue.metadata import check_name  # noqa: PLC0415
    from hqueue.metadata.access_rules import AccessRules  # noqa: PLC0415  (not needed for help)
    from hqueue.settings.attributes import check_queue_name  # noqa: PLC0415

    (wanted,) = _parsed(operation, alone=True)
    asked = check_name(principal), wanted, check_queue_name(queue), topic
    if name is not None:
        check_name(name)
    rules = session_of(context).client.coordination.access_rules.read() or AccessRules()
    found = rules.rule_for(*asked, name, own=name in {None, principal})
    _show([] if found is None else [found], json=json)
    administers = _administered_by(principal)
    if found is None and administers:
        say(
            f"No rule allows it, and none is needed: {principal} is an administrator, by this "
            f"machine's settings of the {' and the '.join(administers)}."
        )
    elif found is None:
        say(
            "No rule allows it: see hqueue access grant. Only administrators of hubs and workers "
            "(their setting administrators) need none."
        )
        raise typer.Exit(ExitCode.FAILED)


def _change(context: typer.Context, edit: Callable[[AccessRules], AccessRules]) -> None:
    from hqueue.connecting import own_login  # noqa: PLC0415  (not needed for help)

    client = session_of(context).client
    client.coordination.access_rules.change(edit, by=own_login(client.settings))


def _rule(principal: str, operations: str, queue: str, topic: str, name: str | None) -> AccessRule:
    from hqueue.metadata.access_rules import AccessRule  # noqa: PLC0415  (not needed for help)

    return AccessRule(principal, frozenset(_parsed(operations)), queue, topic, name)


def _parsed(text: str, *, alone: bool = False) -> list[Operation]:
    from hqueue.metadata.access_rules import Operation  # noqa: PLC0415  (not needed for help)

    if text == "all" and not alone:
        return list(Operation)
    names = [text] if alone else [name.strip() for name in text.split(",") if name.strip()]
    known = {each.value: each for each in Operation}
    for name in names:
        if name not in known:
            raise InvalidInputError("unknown operation", operation=name, operations=",".join(known))
    return [known[name] for name in names]


def _administered_by(principal: str) -> list[str]:
    """List the roles whose settings on this machine name a principal an administrator."""
    return [
        role
        for role in ROLES
        if is_among(names_in(str(find_role_setting(role, "administrators") or "")), principal)
    ]


def _show(rules: Iterable[AccessRule], *, json: bool) -> None:
    rows = (
        (
            rule.principal,
            rule.operation_names if json else ",".join(rule.operation_names),
            rule.queue,
            rule.topic,
            rule.name,
        )
        for rule in rules
    )
    show_rows(("principal", "operations", "queue", "topic", "name"), rows, json=json)


register = group(
    "Hubs",
    "access",
    "List, grant, revoke and check what principals may do.",
    *(list_, grant, revoke, check),
)
