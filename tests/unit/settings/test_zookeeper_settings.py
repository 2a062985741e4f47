"""The settings that ZooKeeper gets: credentials and access rules."""

from __future__ import annotations

import pytest

from hqueue import Settings, SettingsError


def test_credentials_and_access_rules_are_read_from_texts_and_lists() -> None:
    settings = Settings(
        zookeeper_auth="digest:user:pass:word",  # type: ignore[arg-type]
        zookeeper_acl="world:anyone:r,digest:user:Ab+/=:cdrwa",  # type: ignore[arg-type]
    )
    (credential,) = settings.zookeeper_auth
    assert (credential.scheme, credential.credential) == ("digest", "user:pass:word")
    assert [str(rule) for rule in settings.zookeeper_acl] == [
        "world:anyone:r",
        "digest:user:Ab+/=:cdrwa",
    ]
    listed = Settings(zookeeper_auth=["digest:u:with,comma"])  # type: ignore[arg-type]
    assert listed.zookeeper_auth[0].credential == "u:with,comma"


def test_a_secret_is_shown_nowhere() -> None:
    settings = Settings(zookeeper_auth="digest:user:secret")  # type: ignore[arg-type]
    assert "secret" not in repr(settings)
    assert "secret" not in repr(settings.zookeeper_auth)
    with pytest.raises(SettingsError) as caught:
        Settings(zookeeper_auth="secret")  # type: ignore[arg-type]
    assert "secret" not in str(caught.value)
    with pytest.raises(SettingsError) as caught:
        Settings(zookeeper_auth="sasl:user:secret")  # type: ignore[arg-type]
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "given",
    [
        {"zookeeper_authentication": "digest", "zookeeper_auth": "sasl:a:b:c,digest:d:e"},
        {"zookeeper_authentication": "digest", "zookeeper_auth_file": "f"},
        {"zookeeper_authentication": "kerberos", "kerberos_keytab": "k", "gateways": "host:1/2"},
        {"zookeeper_authentication": "kerberos", "zookeeper_acl": "auth::cdrwa"},
        {"zookeeper_auth_file": "f", "zookeeper_acl": "auth::r"},
        {"zookeeper_tls": True, "tls_ca": "c", "gateways": "host:1/2"},
        {"zookeeper_tls": True, "tls_certificate": "c", "zookeeper_acl": "auth::cdrwa"},
    ],
)
def test_ways_to_prove_oneself_to_zookeeper_fit_with_either_way_to_hbase(
    given: dict[str, object],
) -> None:
    Settings(**given)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "wrong",
    [
        {"zookeeper_acl": "world:anyone"},
        {"zookeeper_acl": "world:anyone:x"},
        {"zookeeper_acl": ":anyone:r"},
        {"zookeeper_acl": 5},
        {"zookeeper_auth": "digest"},
        {"zookeeper_authentication": "sasl"},
        {"zookeeper_authentication": "digest"},
        {"zookeeper_authentication": "digest", "zookeeper_auth": "digest:a:b"},
        {"zookeeper_authentication": "digest", "zookeeper_auth": "sasl:a"},
        {"zookeeper_authentication": "digest", "zookeeper_auth": "sasl:a:b,sasl:c:d"},
        {"zookeeper_authentication": "kerberos", "zookeeper_auth": "sasl:a:b"},
        {"zookeeper_auth": "sasl:a:b"},
        {"zookeeper_auth": "digest:a:b", "zookeeper_auth_file": "f"},
        {"zookeeper_principal": "zookeeper/host"},
        {"zookeeper_authentication": "digest", "zookeeper_principal": "zookeeper/host"},
        {"zookeeper_acl": "auth::cdrwa"},
        {"zookeeper_acl": "auth::cdrwa", "zookeeper_tls": True},
        {"zookeeper_session_timeout_ms": 0},
        {"zookeeper_root": "hqueue"},
        {"zookeeper_root": "/"},
        {"zookeeper_root": "/a/"},
        {"zookeeper_root": "/a//b"},
        {"zookeeper_root": "/a/../b"},
    ],
)
def test_a_wrong_setting_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(SettingsError):
        Settings(**wrong)  # type: ignore[arg-type]
