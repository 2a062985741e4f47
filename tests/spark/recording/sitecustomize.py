"""Python imports this when it starts: with this folder in its path, it writes down each delegation
token that is handed over, so that a test knows what must not be found anywhere. Streams get another
token early, so that a task which waits long for its turn has one that is still good.
"""

from __future__ import annotations

import json
import os

from hqueue.net.tokens import DelegationToken
from pyspark_hqueue.reading import clients

clients.RENEWED_AFTER = 0.1

_hand_over = DelegationToken.to_bytes


def _recorded(token: DelegationToken) -> bytes:
    line = [os.getpid(), token.identifier.hex(), token.password.hex(), token.expires_ms]
    with open(os.environ["RECORDED_TOKENS"], "a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")
    return _hand_over(token)


DelegationToken.to_bytes = _recorded  # type: ignore[method-assign]
