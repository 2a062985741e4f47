"""Settings of Kerberos and TLS: what they are by default, and what does not fit together."""

from __future__ import annotations

from typing import Any

import pytest

from hqueue import Settings, SettingsError

KERBEROS: dict[str, Any] = {"hbase_authentication": "kerberos"}
TOKEN: dict[str, Any] = {"hbase_authentication": "token"}
TLS: dict[str, Any] = {"hbase_tls": True}


def test_by_default_nothing_is_proven_and_the_cheapest_protection_will_do() -> None:
    settings = Settings()
    assert settings.hbase_authentication == "simple"
    assert not settings.hbase_tls
    assert settings.hbase_protection == ("authentication", "integrity", "privacy")
    assert (settings.hbase_principal, settings.hbase_master_principal) == ("hbase/_HOST", None)


def test_settings_come_from_the_environment_as_texts() -> None:
    given = {
        "HQUEUE_HBASE_AUTHENTICATION": "kerberos",
        "HQUEUE_HBASE_PROTECTION": "privacy, integrity",
        "HQUEUE_KERBEROS_KEYTAB": "/etc/keys",
        "HQUEUE_HBASE_TLS": "true",
        "HQUEUE_TLS_CA": "/etc/ca.pem",
        "HQUEUE_TLS_VERIFY_HOSTNAME": "false",
    }
    settings = Settings.load({}, {**given, "HQUEUE_LOCAL_HOME": "/nowhere"})
    assert settings.hbase_protection == ("privacy", "integrity")
    assert settings.kerberos_keytab == "/etc/keys"
    assert settings.hbase_tls
    assert not settings.tls_verify_hostname


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"hbase_authentication": "Kerberos"}, "hbase_authentication must be"),
        ({"hbase_protection": "secret"}, "hbase_protection must be"),
        ({"hbase_protection": ""}, "hbase_protection must be"),
        ({"hbase_protection": "privacy,privacy"}, "hbase_protection must be"),
        ({"hbase_protection": 7}, "hbase_protection must be"),
        ({"kerberos_keytab": "k"}, "kerberos_keytab needs hbase_authentication='kerberos' or"),
        ({"kerberos_principal": "p"}, "kerberos_principal needs"),
        ({"kerberos_config": "c"}, "kerberos_config needs"),
        ({"kerberos_ticket_cache": "c"}, "kerberos_ticket_cache needs"),
        ({"hbase_master_principal": "m"}, "hbase_master_principal needs"),
        ({"hbase_fallback_to_simple": True}, "hbase_fallback_to_simple needs"),
        ({**KERBEROS, "kerberos_keytab": ""}, "this setting must be a string"),
        ({**KERBEROS, "kerberos_keytab": "k", "kerberos_ticket_cache": "c"}, "not both"),
        ({"tls_ca": "ca"}, "tls_ca needs hbase_tls=True"),
        ({"tls_certificate": "c"}, "tls_certificate needs hbase_tls=True"),
        ({**TLS, "tls_key": "k"}, "tls_key needs tls_certificate"),
        ({"hbase_token_file": "t"}, "hbase_token_file needs hbase_authentication='token'"),
        ({**KERBEROS, "kerberos_keytab": "k", "hbase_token_file": "t"}, "not both"),
        (
            {**TOKEN, "kerberos_keytab": "k"},
            "kerberos_keytab needs hbase_authentication='kerberos'",
        ),
        ({**TOKEN, "gateways": "host:1/2"}, "secure only the native way"),
        ({**KERBEROS, "gateways": "host:1/2"}, "secure only the native way"),
        ({**TLS, "hbase": "gateways"}, "secure only the native way"),
        ({"gateways_tls": True}, "gateways_tls secures the way to gateways"),
    ],
)
def test_settings_that_do_not_fit_are_refused(given: dict[str, Any], text: str) -> None:
    with pytest.raises(SettingsError, match=text):
        Settings(**given)
