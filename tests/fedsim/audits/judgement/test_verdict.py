"""One scale of exit statuses for every audit."""

import pytest

from fedsim.audits.judgement.claim import Verdict, exit_status


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("verdict", [each for each in Verdict if each is not Verdict.NO_CLAIM])
def test_a_claim_passes_if_it_is_supported_and_strictness_changes_nothing(
    verdict: Verdict, strict: bool
) -> None:
    status = exit_status(verdict, strict)
    assert (status == 0) == (verdict is Verdict.SUPPORTED)
    assert status not in (1, 2)  # which failures and bad input have


def test_no_claim_passes_unless_one_was_asked_for() -> None:
    assert exit_status(Verdict.NO_CLAIM, strict=False) == 0
    assert exit_status(Verdict.NO_CLAIM, strict=True) == exit_status(Verdict.NOT_JUDGED, True)
