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


@pytest.mark.parametrize(
    "wrong",
    [
        {"zookeeper_acl": "world:anyone"},
        {"zookeeper_acl": "world:anyone:x"},
        {"zookeeper_acl": ":anyone:r"},
        {"zookeeper_acl": 5},
        {"zookeeper_auth": "digest"},
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
