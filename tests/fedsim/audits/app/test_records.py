"""An app whose clients train with Opacus is judged for each record, over all rounds.

The app has the layout of Flower's own example: a new engine in every round, local epochs, FedAvg.
"""

from pathlib import Path

import numpy as np
import pytest

from fedsim.audits.app.audit import audit_directory
from fedsim.audits.app.records import ClientRun, judged
from fedsim.audits.judgement.claim import Claim, Verdict
from fedsim.audits.steps.observation import ObservedRun
from fedsim.audits.steps.theory import epsilon_of
from fedsim.audits.steps.watch import Accounted, Step
from fedsim.privacy.mechanism import Neighbouring
from fedsim.reports.kinds import audited as words

APP = Path(__file__).parents[3] / "apps" / "opacus_app"
RECORDS, BATCH, DELTA = 599, 64, 1e-5
STEPS = 2 * 2 * 10
"""Two rounds of two epochs, each of ten batches."""

TRUTH = epsilon_of([1.5] * STEPS, [1 / 10] * STEPS, DELTA)


def audited(variant="", claimed=1.01 * TRUTH, clients=3):
    return audit_directory(
        APP,
        trials=20,
        clients=clients,
        rounds=2,
        run_config={"variant": variant, "local-epochs": 2},
        claim=Claim(claimed, DELTA, unit="record"),
    )


def test_all_rounds_of_a_client_compose_whatever_engine_took_their_steps():
    right = audited()
    assert right.verdict is Verdict.SUPPORTED
    assert right.details.records == {"clients": 3, "steps": STEPS}
    assert right.epsilon == pytest.approx(TRUTH)
    assert {each.rule for each in right.findings if each.breaks} == set()
    assert "all steps of a client compose" in right.reasons[0]
    page = words.page(words.told(right))
    assert "The unit of privacy is one record." in page
    assert f">{TRUTH:.3f}</td>" in page
    assert right.report["rows"]["server"]["attack"] is None
    assert right.report["details"]["decisions"] is None
    assert "trial" not in words.played(right)
    # What one engine says of its round is less than what all rounds reveal.
    of_a_round = epsilon_of([1.5] * (STEPS // 2), [1 / 10] * (STEPS // 2), DELTA)
    assert audited(claimed=1.01 * of_a_round).verdict is Verdict.SUSPECT


WRONG = {
    "no noise": ("no-noise", Verdict.SUSPECT),
    "less noise": ("realised-noise", Verdict.SUSPECT),
    "no clipping": ("clipping", Verdict.SUSPECT),
    "fixed seed": ("seeded-noise", Verdict.SUSPECT),
    "without engine": ("untold-steps", Verdict.SUSPECT),
    "shares a part": ("", Verdict.NOT_JUDGED),
}


@pytest.mark.slow
@pytest.mark.parametrize("variant", WRONG)
def test_a_client_that_protects_less_than_it_says_supports_no_claim(variant):
    """The claim has room for half of the noise."""
    rule, verdict = WRONG[variant]
    found = audited(variant, claimed=20.0)
    assert found.verdict is verdict
    assert {each.rule for each in found.findings if each.breaks} == ({rule} if rule else set())
    if variant == "shares a part":
        assert "by more than the steps of Opacus's optimizer made" in found.reasons[0]


def training(rounds, first=0.5, **run):
    """Return the training of one client, of ten steps."""
    random, freedom = np.random.default_rng(round(1000 * first)), 2000
    drawn = [tuple(np.flatnonzero(random.random(64) < 0.125).tolist()) for _ in range(10)]
    steps = tuple(
        Step(
            place=place,
            engine="",
            divisor=8.0,
            clipping_norm=1.0,
            noise_multiplier=1.0,
            sample_rate=0.125,
            batch=len(members),
            members=members,
            records=64,
            sum_length=None,
            accumulated=1,
            sampling="poisson",
            adaptive=False,
            neighbour_divisor=None,
            charged=Accounted(1.0, 0.125, place),
            clipped=True,
            randomness="secure",
            sizes=(freedom,),
            noise_energies=(freedom * (1 + 0.03 * (-1) ** place),),
            noise=(first, place / 100, 0.1, 0.2),
        )
        for place, members in enumerate(drawn, 1)
    )
    settings = {
        "steps": steps, "size": 64, "epochs": rounds, "released": f"{first}"
    }  # fmt: skip
    return ClientRun(ObservedRun(**(settings | run)), rounds, 0, 1.0)


def verdict(*runs, rounds=2):
    found = judged(runs, rounds, Neighbouring.ADD_REMOVE, DELTA, 0.95)
    assert found is not None
    broken = {each.rule for each in found.findings if each.breaks}
    epsilon = str(None if found.limit is None else found.limit.epsilon)
    return epsilon, broken, [*found.evidence.unknown, *found.evidence.unsure]


def test_clients_are_judged_one_by_one_and_the_least_protected_decides():
    right = [{0: training(2, first=0.1 * n), 1: training(2, first=0.1 * n + 5)} for n in (1, 2)]
    value, broken, reasons = verdict(*right)
    assert (broken, reasons) == (set(), [])
    assert float(value) == pytest.approx(epsilon_of([1.0] * 10, [0.125] * 10, DELTA))
    # A client that some rounds left out may be in all of them another time.
    sampled = [run | {1: training(1, first=0.1 * n + 7)} for n, run in enumerate(right)]
    assert "client 1 trained in 1 of 2 rounds" in verdict(*sampled)[2][0]
    # A metric that differs between honest runs tells more than the steps do.
    beside = [
        run | {1: training(2, first=n + 9, beside=(("loss of round 1", str(n)),))}
        for n, run in enumerate(right)
    ]
    value, broken, reasons = verdict(*beside)
    assert (value, broken) == ("None", set())
    assert "loss of round 1" in reasons[0]
    # The same noise at two clients, in one run or in both.
    same = [run | {1: training(2, first=0.1 * (n + 1))} for n, run in enumerate(right)]
    assert verdict(*same)[1] == {"seeded-noise"}


def test_an_app_without_opacus_has_no_steps_to_judge():
    assert judged([{0: training(2, steps=())}], 2, Neighbouring.ADD_REMOVE, DELTA, 0.95) is None
