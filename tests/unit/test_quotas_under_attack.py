"""An honest caller of a hub beside ten that are over their quotas, as `tests.strangers.quotas` does
it for longer.
"""

from __future__ import annotations

import pytest

from tests.strangers import quotas
from tests.support.certificates import Certificates

MS_MAX = 1_000.0
"""`tests.strangers.quotas` measures how many times longer than alone a call takes."""


@pytest.mark.thorough("starts four processes, 6 s; each promise is tested beside")
def test_callers_that_are_over_their_quotas_and_obey_nothing_hold_up_no_other(
    certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quotas, "KINDS", {"calls by the hundred": None})
    for name in ("hub", "honest", *(f"attacker{number}" for number in range(quotas.ATTACKERS))):
        certificates.make(name)
    monkeypatch.setattr(quotas, "WARM_S", 0.3)
    crowds = [quotas.ATTACKERS]
    found = quotas.compare(certificates.folder, quotas.QUOTAS, 1, rounds=1, crowds=crowds)
    (figures,) = found.values()
    assert figures["attacked_p50_ms"] <= MS_MAX, figures
    assert 0 < figures["answers_a_second"] < 3 * 50 * quotas.ATTACKERS, figures
