"""Which principal a certificate is."""

from __future__ import annotations

from typing import Any

import pytest

from hqueue import SettingsError
from hqueue.net.principals import PrincipalRules, distinguished_name
from hqueue.net.refusals import RefusedError


def certificate(*subject: tuple[str, str], names: tuple[tuple[str, str], ...] = ()) -> Any:
    return {"subject": tuple((part,) for part in subject), "subjectAltName": names}


LOADER = certificate(
    ("countryName", "DE"),
    ("organizationName", "Example, Inc."),
    ("organizationalUnitName", "feeds"),
    ("commonName", "Loader"),
    names=(("DNS", "host1"), ("URI", "spiffe://feeds/loader-1")),
)


@pytest.mark.parametrize(
    ("rules", "principal"),
    [
        ("DEFAULT", "Loader"),
        (r"RULE:^CN=([^,]+),OU=(\w+),.*$/$2-$1/", "feeds-Loader"),
        (r"RULE:^CN=([^,]+),.*$/$1/L", "loader"),
        (r"RULE:^CN=([^,]+),.*$/$1/U , DEFAULT", "LOADER"),
        (r"RULE:^CN=(Nobody),.*$/$1/, DEFAULT", "Loader"),
        (r"RULE:CN=(.*?),OU=feeds,O=Example\\, Inc\.,C=DE/it.$1/", "it.Loader"),
        (r"SAN:URI:spiffe:\/\/feeds\/(.*)/$1/,DEFAULT", "loader-1"),
        (r"SAN:DNS:(host\d)/$1/", "host1"),
        (r"RULE:.*/fixed/", "fixed"),
        (r"RULE:CN=(x)?.*/a$1b/", "ab"),
    ],
)
def test_the_first_rule_that_matches_a_whole_name_makes_the_principal(
    rules: str, principal: str
) -> None:
    assert PrincipalRules(rules).principal_of(LOADER) == principal


@pytest.mark.parametrize(
    ("rules", "of"),
    [
        (r"RULE:^CN=(Lo)/$1/", LOADER),
        (r"SAN:DNS:host/x/", LOADER),
        ("DEFAULT", certificate(("organizationName", "x"))),
        ("DEFAULT", certificate(("commonName", "a"), ("commonName", "admin"))),
        ("DEFAULT", certificate(("commonName", "*"))),
        ("DEFAULT", certificate(("commonName", "a,b"))),
        ("DEFAULT", certificate(("commonName", "a\nb"))),
        ("DEFAULT", certificate(("commonName", "anonymous"))),
        ("DEFAULT", certificate(("commonName", "a" * 201))),
        ("RULE:.*//", LOADER),
        ("DEFAULT", {}),
    ],
)
def test_a_certificate_that_is_nobodys_or_whose_name_no_principal_can_have_is_refused(
    rules: str, of: Any
) -> None:
    with pytest.raises(RefusedError, match="tls_principal_rules"):
        PrincipalRules(rules).principal_of(of)


def test_a_comma_within_an_attribute_begins_no_other_attribute() -> None:
    forged = certificate(("commonName", "nobody"), ("organizationName", "x,CN=admin"))
    assert distinguished_name(forged["subject"]) == r"O=x\,CN=admin,CN=nobody"
    odd = certificate(("userId", " #a "), ("title", "#b"), ("commonName", 'q"+<>;\\'))
    assert distinguished_name(odd["subject"]) == r"CN=q\"\+\<\>\;\\,title=\#b,UID=\ #a\ "


@pytest.mark.parametrize(
    "rules",
    ["", "CN", "RULE:a/b", "RULE:(/x/", "RULE:a/$1/", "RULE:a/b/X", "DEFAULT DEFAULT", "SAN:a/b"],
)
def test_what_is_no_rule_is_refused_with_the_place(rules: str) -> None:
    with pytest.raises(SettingsError, match="tls_principal_rules must be"):
        PrincipalRules(rules)
