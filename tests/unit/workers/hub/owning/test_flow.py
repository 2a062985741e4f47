"""Each branch of Hedwig's flow, walked through."""

from __future__ import annotations

import pytest

from hqueue import Address
from hqueue_workers.hub.owning.flow import CREATE, OWN, SERVE, Known, Redirect, Step, next_step

ME, OTHER, THIRD = (Address("hub", port) for port in (1, 2, 3))


def step(known: Known, *, redirected: bool = False, chosen: Address | None = None) -> Step:
    def choose() -> Address:
        assert chosen is not None, "no hub should be chosen here"
        return chosen

    return next_step(known, ME, redirected=redirected, choose=choose)


@pytest.mark.parametrize("redirected", [False, True])
def test_a_topic_that_is_missing_is_created(redirected: bool) -> None:
    assert step(Known(exists=False), redirected=redirected) == CREATE


@pytest.mark.parametrize("redirected", [False, True])
def test_what_is_owned_here_is_made_this_hubs_own_again(redirected: bool) -> None:
    assert step(Known(exists=True, owner=ME), redirected=redirected) == OWN


@pytest.mark.parametrize("redirected", [False, True])
def test_the_caller_is_sent_to_the_owner(redirected: bool) -> None:
    assert step(Known(exists=True, owner=OTHER), redirected=redirected) == Redirect(OTHER)


def test_without_an_owner_a_hub_is_chosen() -> None:
    assert step(Known(exists=True), chosen=OTHER) == Redirect(OTHER)


def test_a_hub_that_chooses_itself_tries_to_own() -> None:
    assert step(Known(exists=True), chosen=ME) == OWN


def test_a_hub_that_was_chosen_tries_to_own_and_chooses_no_other() -> None:
    assert step(Known(exists=True), redirected=True) == OWN


@pytest.mark.parametrize("redirected", [False, True])
def test_who_wins_serves(redirected: bool) -> None:
    assert step(Known(exists=True, owner=ME, won=True), redirected=redirected) == SERVE


@pytest.mark.parametrize("redirected", [False, True])
def test_who_lost_the_race_sends_the_caller_to_the_winner(redirected: bool) -> None:
    lost = Known(exists=True, owner=THIRD, won=False)
    assert step(lost, redirected=redirected) == Redirect(THIRD)
