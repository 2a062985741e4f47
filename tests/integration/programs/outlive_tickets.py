"""Goes on while its tickets expire, with a keytab; and is refused without one.

Usage: outlive_tickets.py SETTINGS QUEUE SHARED SECONDS TICKETS

SETTINGS are a client's, as JSON. Traffic passes through QUEUE for so many seconds, in which tickets
expire. Then a client puts into SHARED with tickets, which it keeps in the file TICKETS, and again
when they have expired: the text of its error is printed.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import hqueue
from hqueue import Message
from hqueue.errors import AuthenticationError
from hqueue.net.gssapi import Context, Credential
from tests.support.traffic import Traffic

settings: dict[str, Any] = json.loads(sys.argv[1])
queue, shared, seconds, path = sys.argv[2], sys.argv[3], float(sys.argv[4]), sys.argv[5]


def connect() -> hqueue.Client:
    return hqueue.connect(hqueue.Settings(**settings))


begun_s = time.monotonic()
with Traffic(connect, queue) as traffic:
    traffic.await_passed(3)
    keytab, principal = settings["kerberos_keytab"], settings["kerberos_principal"]
    store = {"client_keytab": f"FILE:{keytab}", "ccache": f"FILE:{path}"}
    Context(Credential(principal, store), "hbase/127.0.0.1", confidential=False).step(b"")
    by_tickets = {
        **{name: value for name, value in settings.items() if not name.startswith("kerberos_")},
        "kerberos_config": settings["kerberos_config"],
        "kerberos_ticket_cache": f"FILE:{path}",
    }
    with hqueue.connect(hqueue.Settings(**by_tickets)) as client:
        other = client.queue(shared)
        other.put(Message("t", b"by tickets"))
        while time.monotonic() < begun_s + seconds:
            traffic.await_passed(10)
        try:
            other.put(Message("t", b"too late"))
        except AuthenticationError as exc:
            print(exc.text)
    traffic.await_passed(10)
