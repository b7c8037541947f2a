"""A node refuses what its owner did not agree to; simulated people are not asked."""

from collections.abc import Callable

import pytest

from fedsim import consent
from fedsim.config import Config
from fedsim.messages import Request, Role

Make = Callable[..., Config]


@pytest.mark.parametrize(
    ("changes", "role", "kinds"),
    [
        ({}, Role.OWNER, set()),
        ({}, Role.ADVERSARY, set()),
        ({}, Role.CHALLENGED, {"challenge"}),
        ({"challenge.kind": "blank"}, Role.CHALLENGED, {"challenge", "canaries"}),
        ({"audit.mode": "instrumented"}, Role.OWNER, {"instrumented"}),
        ({"audit.bayesian-pairs": 2}, Role.OWNER, {"instrumented"}),
        ({"audit.mode": "instrumented"}, Role.CHALLENGED, {"challenge", "instrumented"}),
    ],
)
def test_what_a_message_needs(small: Make, changes: dict, role: Role, kinds: set[str]) -> None:
    assert consent.needed(small(changes), Request(1, 0, 8, 1.0, role)) == kinds


def test_nobody_asks_simulated_people() -> None:
    consent.check({"partition-id": 0}, set(consent.KINDS))


@pytest.mark.parametrize("said", ["", "canaries", "challenge"])
def test_what_was_not_agreed_to_is_refused_with_what_to_set(said: str) -> None:
    with pytest.raises(consent.RefusedError, match="did not consent to 'instrumented'") as refusal:
        consent.check({"consent": said}, {"instrumented"})
    wanted = str(refusal.value).partition('consent = "')[2].partition('"')[0]
    consent.check({"consent": wanted}, {"instrumented"})
    assert set(filter(None, said.split(","))) <= set(wanted.split(","))


def test_what_was_agreed_to_is_done() -> None:
    consent.check({"consent": " challenge , instrumented"}, {"challenge", "instrumented"})
    consent.check({"consent": ""}, set())


def test_a_word_that_means_nothing_is_no_consent() -> None:
    with pytest.raises(consent.RefusedError, match="has 'chalenge', which is none of"):
        consent.check({"consent": "chalenge"}, set())
