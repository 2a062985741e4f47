"""Principals: the names of those who proved who they are, as rules make them of certificates and of
Kerberos' principals.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeGuard

from hqueue.errors import SettingsError
from hqueue.net.refusals import RefusedError
from hqueue.settings.names import is_name

__all__ = ["ANONYMOUS", "PrincipalRules", "TicketRules", "distinguished_name", "is_proven"]

ANONYMOUS = "anonymous"
"""The principal of callers that prove nothing, where ports also serve these (`tls_optional`), and
the audit's name for callers that have not authenticated. No certificate and no ticket makes this
principal."""

DEFAULT = "DEFAULT"

_RULE = re.compile(
    r"\s*(?:(?P<default>DEFAULT)"
    r"|(?P<of>RULE|SAN):(?P<pattern>(?:\\.|[^\\/])*)/(?P<made>(?:\\.|[^\\/])*)/(?P<case>[LU]?))"
    r"\s*(?:,|$)"
)
_GROUP = re.compile(r"\\(.)|\$(\d)")

_SHORT = {
    "commonName": "CN",
    "countryName": "C",
    "domainComponent": "DC",
    "localityName": "L",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "stateOrProvinceName": "ST",
    "streetAddress": "STREET",
    "userId": "UID",
}
"""The attributes' names of RFC 2253. Others stand under OpenSSL's names."""


class _Rule(NamedTuple):
    of_subject: bool
    """Whether it is for the subject's name; else it is for each alternative name."""
    pattern: re.Pattern[str]
    made: str
    case: str

    def apply(self, text: str) -> str | None:
        """The principal; None if the rule is not for this text."""
        found = self.pattern.fullmatch(text)
        if found is None:
            return None
        made = _GROUP.sub(lambda each: each[1] or found[int(each[2])] or "", self.made)
        return made.lower() if self.case == "L" else made.upper() if self.case == "U" else made


class PrincipalRules:
    r"""Which principal a certificate is, by rules as Kafka's ``ssl.principal.mapping.rules``.

    The first rule whose pattern matches a name of the certificate as a whole makes the principal:
    ``RULE:pattern/replacement/`` for the subject's distinguished name, like ``CN=loader,OU=feeds``;
    ``SAN:pattern/replacement/`` for each alternative name, like ``DNS:host1`` or
    ``URI:spiffe://feeds/loader``; ``DEFAULT``, the subject's common name, if there is one only. A
    pattern is a regular expression, in which ``\/`` stands for a slash; ``$1`` in a replacement is
    its first group; an ``L`` or ``U`` at the end makes small or capital letters of it all.

    Args:
        text: the rules, with commas between.

    Raises:
        SettingsError: these are not rules.
    """

    def __init__(self, text: str = DEFAULT) -> None:
        self._rules = _parse(text)

    def principal_of(self, certificate: Mapping[str, Any]) -> str:
        """The principal of a certificate, as `ssl.SSLSocket.getpeercert` gives it.

        Raises:
            RefusedError: no rule matches, or a principal can't have the name that one makes.
        """
        subject = certificate.get("subject", ())
        name = distinguished_name(subject)
        alternatives = [f"{kind}:{value}" for kind, value in certificate.get("subjectAltName", ())]
        for rule in self._rules:
            if rule is None:
                made = _common_name(subject)
            else:
                texts = [name] if rule.of_subject else alternatives
                made = next(filter(None, map(rule.apply, texts)), None)
            if made is None:
                continue
            if not _may_be(made):
                raise RefusedError(
                    "the rules make a name of this certificate that a principal can't have: see "
                    "tls_principal_rules",
                    subject=name,
                    principal=made,
                )
            return made
        raise RefusedError(
            "no rule makes a principal of this certificate: see tls_principal_rules",
            subject=name,
            alternatives=alternatives,
        )


class TicketRules:
    r"""Which principal a principal of Kerberos is, by rules as `PrincipalRules`.

    ``RULE:pattern/replacement/`` is for the whole name, like ``alice@EXAMPLE.COM`` or
    ``alice\/admin@EXAMPLE.COM`` in a pattern. ``DEFAULT`` makes ``alice`` of ``alice@REALM`` in the
    server's own realm, and nothing of names in other realms, or of several parts.

    Args:
        text: the rules, with commas between.
        realm: the server's realm.
        setting: the setting that has the rules.

    Raises:
        SettingsError: these are not rules.
    """

    def __init__(self, text: str, realm: str, setting: str) -> None:
        self._rules = _parse(text, setting, ("RULE",))
        self._realm = realm
        self._setting = setting

    def principal_of(self, client: str) -> str:
        """The principal of a client, which the library of Kerberos names.

        Raises:
            RefusedError: no rule matches, or a principal can't have the name that one makes.
        """
        name, _, realm = client.rpartition("@")
        # A backslash stands before what only looks like the end of a part: no rule may take it so.
        for rule in () if "\\" in client else self._rules:
            if rule is None:
                made = name if realm == self._realm and "/" not in name else None
            else:
                made = rule.apply(client)
            if made is None:
                continue
            if not _may_be(made):
                raise RefusedError(
                    "the rules make a name of this ticket's owner that a principal can't have: "
                    f"see {self._setting}",
                    client=client,
                    principal=made,
                )
            return made
        raise RefusedError(
            f"no rule makes a principal of this ticket's owner: see {self._setting}",
            client=client,
            realm=self._realm,
        )


def _may_be(name: str) -> bool:
    """Whether a principal that is proven may have this name."""
    return is_name(name) and name != ANONYMOUS


def is_proven(principal: str | None) -> TypeGuard[str]:
    """Whether a caller has proven to be a principal: None says that none is asked for."""
    return principal is not None and principal != ANONYMOUS


def distinguished_name(subject: Sequence[Sequence[tuple[str, str]]]) -> str:
    """A subject's name as RFC 2253 writes it: ``CN=loader,OU=feeds,O=Example``.

    Args:
        subject: its parts, as `ssl.SSLSocket.getpeercert` gives them.
    """
    return ",".join(
        "+".join(f"{_SHORT.get(kind, kind)}={_escaped(value)}" for kind, value in part)
        for part in reversed(subject)
    )


def _escaped(value: str) -> str:
    escaped = re.sub(r'([,+"\\<>;])', r"\\\1", value)
    if escaped.endswith(" "):
        escaped = f"{escaped[:-1]}\\ "
    return f"\\{escaped}" if escaped.startswith(("#", " ")) else escaped


def _common_name(subject: Sequence[Sequence[tuple[str, str]]]) -> str | None:
    names = [value for part in subject for kind, value in part if kind == "commonName"]
    return names[0] if len(names) == 1 else None


def _parse(
    text: str, setting: str = "tls_principal_rules", kinds: Sequence[str] = ("RULE", "SAN")
) -> list[_Rule | None]:
    """The rules; None is the default."""
    rules: list[_Rule | None] = []
    at = 0
    while at < len(text) or not rules:
        found = _RULE.match(text, at)
        if found is None or (found["of"] or kinds[0]) not in kinds:
            reason = f"at character {at + 1} no rule begins, or one does not end"
            raise _unknown(text, reason, setting, kinds)
        at = found.end()
        if found["default"]:
            rules.append(None)
            continue
        try:
            pattern = re.compile(found["pattern"])
        except re.error as exc:
            raise _unknown(text, str(exc), setting, kinds) from exc
        groups = [int(number) for _, number in _GROUP.findall(found["made"]) if number]
        if any(number > pattern.groups for number in groups):
            reason = "a replacement names a group that its pattern does not have"
            raise _unknown(text, reason, setting, kinds)
        rules.append(_Rule(found["of"] == "RULE", pattern, found["made"], found["case"]))
    return rules


def _unknown(text: str, reason: str, setting: str, kinds: Sequence[str]) -> SettingsError:
    each = ", ".join(f"{kind}:pattern/replacement/" for kind in kinds)
    error = SettingsError(f"{setting} must be {each} or DEFAULT, with commas between")
    error.facts.update({setting: text, "reason": reason})
    return error
