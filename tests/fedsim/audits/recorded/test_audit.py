"""An audit says what a transcript proves: no more on clean data, no less on faulty data."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adversaries.bounds.canaries import vector
from adversaries.statistics import gaussian
from fedsim.audits.judgement.claim import Claim
from fedsim.audits.judgement.options import AuditOptions
from fedsim.audits.recorded.audit import Auditor, audit
from fedsim.audits.recorded.releases import NUMBERS
from fedsim.audits.steps.watch import CONFIGURED
from fedsim.federation.transcripts.records import (
    NodeReply,
    ObservedRound,
    Transcript,
    TranscriptFacts,
)
from fedsim.reports.document import terminal
from fedsim.reports.kinds import audited as words

DELTA, CONFIDENCE = 1e-5, 0.99
NODES, ROUNDS, NORM, Z = 4, 10, 0.5, 1.2
SHAPES = {"weight": (20, 10), "bias": (30,)}
SERVER = {
    "strategy": "DifferentialPrivacyServerSideFixedClipping > FedAvg",
    "aggregation": "mean",
    "clipping": "server",
    "noise_multiplier": Z,
    "clipping_norm": NORM,
    "num_sampled_clients": NODES,
}


def federation(
    seed=0,
    *,
    rounds=ROUNDS,
    noise=1.0,
    examples=(1,) * NODES,
    weighted=True,
    mechanism=None,
    same_noise=False,
    laplace=False,
    bare="",
):
    """Return a server's transcript of a federation whose noise is `noise` times the claim.

    noise: of all rounds, or of each; bare: name of an array that gets no noise.
    """
    generator = np.random.default_rng(seed)
    config = SERVER if mechanism is None else mechanism
    stds = np.broadcast_to(noise, rounds) * Z * NORM / NODES
    counts = np.array(list(examples), float)
    weights = counts / counts.sum() if weighted else np.full(counts.size, 1 / counts.size)
    model = {name: generator.standard_normal(shape) for name, shape in SHAPES.items()}
    kept, seen = None, []
    for round in range(1, rounds + 1):
        updates = [
            {name: generator.standard_normal(shape) for name, shape in SHAPES.items()}
            for _ in counts
        ]
        replies = {
            10 + node: NodeReply({name: model[name] + update[name] for name in model}, count)
            for node, (update, count) in enumerate(zip(updates, counts.tolist(), strict=True))
        }
        after = {name: array.copy() for name, array in model.items()}
        for update, weight in zip(updates, weights, strict=True):
            length = np.linalg.norm(vector(update))
            share = weight * NORM / max(NORM, length) if "clipping" in config else weight
            for name, part in update.items():
                after[name] += share * part
        drawn = generator.laplace if laplace else generator.standard_normal
        fresh = {name: stds[round - 1] * drawn(size=shape) for name, shape in SHAPES.items()}
        kept = kept or fresh
        for name, part in (kept if same_noise else fresh).items():
            after[name] += 0 if name == bare else part
        seen.append(ObservedRound(round, model, replies, aggregate=after, mechanism=config))
        model = after
    return Transcript(TranscriptFacts("server", "a test"), tuple(seen), True, "", 0)


def texts(report, *severities):
    chosen = severities or ("alarm", "caution", "note")
    return " | ".join(one["why"] for one in report["findings"] if one["severity"] in chosen)


def report_of(transcript, *numbers, **named):
    return audited(transcript, *numbers, **named).report


def audited(transcript, claimed_epsilon=None, delta=DELTA, confidence=CONFIDENCE):
    if claimed_epsilon is None:
        return audit(transcript, AuditOptions(delta=delta, confidence=confidence))
    claim = Claim(claimed_epsilon, delta, unit="client")
    return audit(transcript, AuditOptions(claim=claim, confidence=confidence))


@pytest.mark.slow
def test_the_realised_multiplier_covers_the_claim_as_often_as_it_says_without_alarms():
    covered, alarms, games = 0, 0, 100
    for seed in range(games):
        report = report_of(federation(seed, rounds=3))
        ends = report["rows"]["participant"]["noise"]
        covered += ends["low"] <= 1 <= ends["high"]
        alarms += bool(texts(report, "alarm", "caution"))
    assert covered >= 95
    # Each of at most four checks is wrong once in a thousand transcripts.
    assert alarms <= 3


def test_epsilon_is_that_of_the_composed_gaussian_mechanism():
    release = report_of(federation())["details"]["release"]
    for client in release["clients"]:
        assert client["rounds"] == ROUNDS
        assert client["epsilon"] == pytest.approx(gaussian.epsilon(math.sqrt(ROUNDS) / Z, DELTA))


def test_beliefs_are_the_log_likelihood_ratios_of_each_client():
    transcript = federation(rounds=3)
    client = report_of(transcript)["details"]["release"]["clients"][2]
    total, std = 0.0, Z * NORM / NODES
    for observed, found in zip(transcript.rounds, client["log_odds"], strict=True):
        assert observed.aggregate is not None
        parts = []
        for reply in observed.replies.values():
            update = vector(reply.arrays) - vector(observed.model)
            parts.append(update * min(1, NORM / np.linalg.norm(update)) / NODES)
        released = vector(observed.aggregate) - vector(observed.model)
        others = sum(parts) - parts[2]
        absent, present = released - others, released - others - parts[2]
        total += (absent @ absent - present @ present) / (2 * std**2)
        assert found == pytest.approx(total)
    assert client["belief"][-1] == pytest.approx(1 / (1 + math.exp(-total)))


def test_less_noise_than_configured_is_an_alarm_and_its_epsilon_that_of_the_real_noise():
    report = report_of(federation(noise=0.5), claimed_epsilon=20.0)
    assert report["details"]["release"]["noise"] == "less"
    assert "the noise is less than configured" in texts(report, "alarm")
    truth = gaussian.epsilon(math.sqrt(ROUNDS) / (Z * 0.5), DELTA)
    client = report["details"]["release"]["clients"][0]
    assert report["rows"]["participant"]["attack"]["proven"] < truth < client["epsilon"]
    assert "claim of epsilon 20 at delta 1e-05 is refuted" in texts(report, "alarm")
    assert "refuted" not in texts(report_of(federation(), claimed_epsilon=20.0))
    assert report_of(federation(noise=2.0))["details"]["release"]["noise"] == "more"


def test_more_noise_in_one_round_makes_up_for_no_other():
    noise = (4.0, 0.1, 0.1, 0.1)
    transcript = federation(noise=noise, rounds=4)
    truth = gaussian.epsilon(math.sqrt(sum((one * Z) ** -2 for one in noise)), DELTA)
    report = report_of(transcript, claimed_epsilon=gaussian.epsilon(math.sqrt(4) / Z, DELTA) + 0.01)
    (alarm, _) = (one for one in report["findings"] if one["severity"] == "alarm")
    assert "some rounds have less noise than configured" in alarm["why"]
    assert alarm["rounds"] == [2, 3, 4]
    assert report["details"]["release"]["noise"] == "less"
    for client in report["details"]["release"]["clients"]:
        assert truth <= client["epsilon"]
    row = report["rows"]["participant"]
    assert row["attack"]["proven"] <= truth <= row["limit"]["epsilon"]
    assert report["verdict"] == "convicted"


def test_without_noise_epsilon_is_infinite_and_belief_certain():
    bare = {"aggregation": "mean"}
    for config, severity in ((bare, "note"), (SERVER, "alarm")):
        report = report_of(federation(noise=0.0, mechanism=config))
        assert report["details"]["release"]["noise"] == "none"
        for client in report["details"]["release"]["clients"]:
            assert client["epsilon"] == "Infinity"
            assert client["belief"] == [1.0] * ROUNDS
        assert "no noise" in texts(report, severity)


DISTRIBUTIONS = {
    "normal": lambda generator, size: generator.standard_normal(size),
    "laplace": lambda generator, size: generator.laplace(0, math.sqrt(0.5), size),
    "uniform": lambda generator, size: generator.uniform(-math.sqrt(3), math.sqrt(3), size),
}


def stored(dtype, arrays, std, seed, drawn="normal", claimed=None):
    """Return a server's transcript of ten rounds of a model of this precision.

    arrays: the largest weight and the size of each. Only what is released is rounded.
    claimed: deviation of the noise that is claimed; None: what it is.
    """
    generator, seen = np.random.default_rng(seed), []
    model = {
        name: generator.uniform(-spread, spread, size).astype(dtype)
        for name, (spread, size) in arrays.items()
    }
    config = SERVER | {"clipping_norm": 1.0}
    config |= {"noise_multiplier": (claimed or std) * NODES, "weighted_by": "one"}
    for round in range(1, 11):
        replies, after = {}, {name: array.astype(float) for name, array in model.items()}
        for node in range(NODES):
            sent = {
                name: (array + 0.01 * generator.standard_normal(array.size)).astype(dtype)
                for name, array in model.items()
            }
            replies[10 + node] = NodeReply(sent, 1.0)
            length = np.linalg.norm(vector(sent) - vector(model))
            for name, array in sent.items():
                after[name] += (array.astype(float) - model[name]) / max(1, length) / NODES
        released = {
            name: (array + std * DISTRIBUTIONS[drawn](generator, array.size)).astype(dtype)
            for name, array in after.items()
        }
        seen.append(ObservedRound(round, model, replies, aggregate=released, mechanism=config))
        model = released
    return Transcript(TranscriptFacts("server", "a test"), tuple(seen), True, "", 0)


NEAR_ROUNDING = [("float16", 1.0, 0.0015), ("float16", 1.0, 0.002), ("float32", 5.0, 8e-7)]


@pytest.mark.parametrize(("dtype", "spread", "std"), NEAR_ROUNDING)
def test_honest_noise_near_the_precision_of_the_model_raises_no_alarm(dtype, spread, std):
    for seed in range(8):
        report = report_of(stored(dtype, {"w": (spread, 4096)}, std, seed))
        assert report["details"]["release"]["noise"] == "as claimed"
        assert not texts(report, "alarm", "caution")


@pytest.mark.parametrize("drawn", ["laplace", "uniform"])
@pytest.mark.parametrize(("dtype", "spread", "std"), [("float16", 1.0, 0.003), ("float32", 5.0, 1)])
def test_noise_that_is_not_gaussian_is_convicted_above_rounding(dtype, spread, std, drawn):
    for seed in range(3):
        transcript = stored(dtype, {"w": (spread, 4096)}, std, seed, drawn)
        assert "the noise is not Gaussian" in texts(report_of(transcript), "alarm")


def test_what_rounding_leaves_over_of_large_weights_accuses_no_array():
    # Weights of 2 to 4 are rounded to 1/512: three times the noise that small weights keep.
    arrays = {"large": (4.0, 32), "small": (0.01, 8192)}
    report = report_of(stored("float16", arrays, 1.5e-4, 0))
    assert report["details"]["release"]["noise"] == "as claimed"
    assert "times the noise of the whole model" not in texts(report)


def test_noise_below_rounding_is_neither_confirmed_nor_denied():
    for std in (0.0, 1e-4):
        transcript = stored("float16", {"w": (1.0, 3000)}, std, 0, claimed=1e-4)
        report = report_of(transcript, claimed_epsilon=1e6)
        assert report["details"]["release"]["noise"] == "hidden"
        assert "rounding hides the noise" in texts(report, "caution")
        assert not texts(report, "alarm")
        assert report["details"]["release"]["clients"][0]["epsilon"] == "Infinity"


def test_a_model_that_is_not_finite_leaves_its_round_out():
    transcript = federation()
    rounds = list(transcript.rounds)
    rounds[3] = replace(rounds[3], model=dict(rounds[3].model) | {"bias": np.full(30, np.nan)})
    report = report_of(replace(transcript, rounds=tuple(rounds)))
    assert "the model or its aggregate is not finite" in texts(report, "alarm")
    assert report["details"]["release"]["round_numbers"] == [1, 2, 3, 5, 6, 7, 8, 9, 10]


@pytest.mark.slow
def test_a_true_claim_is_not_refuted_by_an_interval_that_is_only_shown():
    truth, refuted = gaussian.epsilon(math.sqrt(ROUNDS) / Z, DELTA), 0
    for seed in range(60):
        report = report_of(federation(seed), confidence=0.5, claimed_epsilon=truth)
        refuted += "refuted" in texts(report)
    # At half confidence 15 of 60 would be.
    assert refuted <= 1


def test_noise_without_clipping_bounds_nothing():
    config = {"aggregation": "mean"}
    report = report_of(federation(mechanism=config))
    assert report["details"]["release"]["noise"] == "unclaimed"
    clients = report["details"]["release"]["clients"]
    assert all(client["epsilon"] == "Infinity" for client in clients)


def test_weights_of_flowers_own_mean_are_those_of_the_examples():
    for rounds in (1, 30):
        found = report_of(federation(examples=(1, 2, 3, 30), rounds=rounds))
        release = found["details"]["release"]
        assert "num-examples weights the mean" in texts(found, "alarm")
        heavy, light = release["clients"][3], release["clients"][0]
        assert heavy["largest_weight"] == pytest.approx(30 * light["largest_weight"])
        assert heavy["epsilon"] > light["epsilon"]


def test_a_mean_of_own_code_without_noise_is_recognised():
    own = SERVER | {"aggregation": "other"}
    counts = {"examples": (1, 2, 3, 30)}
    quiet = report_of(federation(mechanism=own, noise=0.0, **counts))
    assert quiet["details"]["release"]["noise"] == "none"
    assert report_of(federation(mechanism=own, **counts))["details"]["release"] is None


def test_missing_clients_leave_too_little_noise():
    report = report_of(
        federation(mechanism=SERVER | {"num_sampled_clients": NODES + 2}, noise=2 / 3)
    )
    assert "fewer clients replied than num_sampled_clients" in texts(report, "alarm")
    assert report["details"]["release"]["noise"] == "as claimed"


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ({"same_noise": True}, "repeats that of round 1 "),
        ({"laplace": True, "rounds": 30}, "not Gaussian"),
        ({"bare": "bias"}, "array 'bias' has 0"),
    ],
)
def test_faulty_noise_is_an_alarm(fault, said):
    assert said in texts(report_of(federation(**fault)), "alarm")
    assert said not in texts(report_of(federation()))


def test_too_little_noise_everywhere_accuses_no_single_array():
    report = report_of(federation(noise=0.4))
    assert "the noise is less than configured" in texts(report, "alarm")
    assert "array" not in texts(report)
    assert "array 'bias'" in texts(report_of(federation(noise=0.4, bare="bias")), "alarm")


def test_a_client_that_does_not_clip_is_named():
    transcript = federation(mechanism=SERVER | {"clipping": "client"})
    assert "node 10 sent an update longer than the clipping norm" in texts(report_of(transcript))


@pytest.mark.parametrize("bad", [np.full(30, np.nan), np.full(30, 1e200), np.zeros(31), None])
def test_a_reply_that_cannot_be_read_is_named_and_its_round_left_out(bad):
    transcript = federation()
    broken = transcript.rounds[3]
    arrays = dict(broken.replies[11].arrays) | {"bias": bad}
    if bad is None:
        del arrays["bias"]
    rounds = list(transcript.rounds)
    rounds[3] = replace(broken, replies=broken.replies | {11: NodeReply(arrays, 1.0)})
    report = report_of(replace(transcript, rounds=tuple(rounds)))
    assert "node 11 sent numbers that are not finite, or other shapes" in texts(report, "alarm")
    assert report["details"]["release"]["round_numbers"] == [1, 2, 3, 5, 6, 7, 8, 9, 10]
    assert report["details"]["release"]["noise"] == "as claimed"


@pytest.mark.parametrize("name", ["clipping_norm", "noise_multiplier", "num_sampled_clients"])
@pytest.mark.parametrize(
    "value", [1e308, 1e-300, pytest.param(10**400, id="400 digits"), -1.0, math.nan]
)
def test_a_configured_number_that_nothing_follows_from_is_taken_as_not_recorded(name, value):
    report = report_of(federation(rounds=2, mechanism=SERVER | {name: value}))
    without = {key: kept for key, kept in SERVER.items() if key != name}
    missing = report_of(federation(rounds=2, mechanism=without))
    assert report["details"]["release"] == missing["details"]["release"]
    assert f"the recorded {name} is neither 0 nor between 1e-30 and 1e30" in texts(
        report, "caution"
    )
    assert "is no number" not in texts(missing)


@settings(max_examples=60)
@given(
    st.dictionaries(
        st.sampled_from([*NUMBERS]),
        st.sampled_from([0, 1e-308, 1e-31, *CONFIGURED, 1e31, 1e308, 10**400, math.inf]),
    ),
    st.sampled_from([1e-20, 1.0, 1e20]),
)
def test_no_configured_number_keeps_an_audit_from_its_report(changes, noise):
    changed = SERVER | {"clipping": "client"} | changes
    transcript = federation(rounds=1, noise=noise)
    rounds = [replace(one, mechanism=one.mechanism | changed) for one in transcript.rounds]
    assert audited(replace(transcript, rounds=tuple(rounds)), 1.0).details.release


@pytest.mark.parametrize("changes", [{"aggregation": "other"}, {"adaptive": True}])
def test_an_aggregate_that_is_no_mean_of_fixed_noise_is_not_judged(changes):
    config = SERVER | {"strategy": "Wrapper > FedAdam"} | changes
    report = report_of(federation(mechanism=config), claimed_epsilon=20.0)
    assert report["verdict"] == "not judged"
    assert report["reasons"][0].startswith("Wrapper > FedAdam is not what audits judge")
    assert (report["details"]["release"], texts(report, "alarm")) == (None, "")


def test_noise_by_code_of_ones_own_supports_no_claim():
    report = report_of(federation(mechanism=SERVER | {"own_noise": "mine"}), claimed_epsilon=20.0)
    assert (report["verdict"], texts(report, "alarm")) == ("not judged", "")
    assert "the training's own code, mine, makes the noise" in report["reasons"][0]
    less = report_of(federation(noise=0.5, mechanism=SERVER | {"own_noise": "mine"}), 40.0)
    assert less["verdict"] == "suspect"


def test_rounds_may_be_taken_in_one_by_one():
    transcript, options = federation(), AuditOptions(delta=DELTA, confidence=CONFIDENCE)
    auditor = Auditor(transcript.facts)
    for observed in transcript.rounds[:4]:
        auditor.observe(observed)
    so_far = auditor.report(options)
    shorter = audited(replace(transcript, rounds=transcript.rounds[:4]))
    assert so_far.details.release == shorter.details.release
    for observed in transcript.rounds[4:]:
        auditor.observe(observed)
    assert auditor.report(options).rows == audited(transcript).rows


def test_noise_that_falls_as_short_as_the_audit_would_have_noticed_is_an_alarm():
    """With 95 %: of 100 transcripts fewer than 87 would be an accident of one in 2,000."""
    honest = audited(federation(rounds=2))
    share = honest.row.detects
    assert share is not None
    assert 0.5 < share < 1
    missing = 100 - math.floor(1000 * share) / 10
    noticed = f"if more than {missing:.1f}% of the claimed noise were missing"
    assert noticed in " ".join(terminal.text([terminal.told(words.told(honest))]).split())
    less = [report_of(federation(seed, rounds=2, noise=share)) for seed in range(100)]
    assert sum("noise is less than" in texts(one, "alarm") for one in less) >= 87
