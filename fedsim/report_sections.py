"""What the report says: every section of the page as rows, sentences and marks.

`report` is the content of report.json.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from scipy.special import expit

from adversaries.intervals import clopper_pearson
from adversaries.membership_attacks import ATTACKS as LOSS_ATTACKS
from fedsim import bounds_report, one_run_report
from fedsim.report_values import (
    DASH,
    INFINITE,
    Interval,
    Report,
    advantage_limit,
    at,
    confidence_of,
    epsilon_of,
    first_to_last,
    interval_at,
    is_client,
    is_clipped,
    is_halves,
    is_pac,
    is_sampled,
    is_unprotected,
    local_steps,
    number,
    percent,
    plain,
    rho_alpha_of,
    rho_beta_of,
    setting,
    span,
    standard_errors_apart,
)

Entries = list[tuple[str, str]]

CLASSIC = "rdp-classic"
"""The accountant of the paper, which the empirical epsilon from sensitivities uses too."""

WHO = {
    "participant": "An adversary who took part in this federation and knew everything",
    "server": "An adversary who ran the server of this federation and knew everything",
    "released-model": "An adversary who saw only the released model and knew everything",
}
ROUNDING = {
    "Secure aggregation": "mechanism.rounding.note",
    "Grid step g": "mechanism.rounding.step",
    "Sensitivity more by rounding, relative": "mechanism.rounding.relative_growth",
    "Total variation by rounding, at most": "mechanism.rounding.total_variation",
}
DROPOUTS = {
    "Missing owners tolerated": "dropouts.tolerated",
    "Rounds with missing owners": "dropouts.rounds_with_missing_owners",
    "Fewest shares of noise": "dropouts.fewest_shares",
    "Effective noise multiplier, from and to": "dropouts.effective_noise_multiplier",
}
"""What the mechanism's settings list where it applies."""

TRUST = {
    "central": "Here the server is trusted to add the noise to the sum of the owners' messages.",
    "local": "Here every owner adds the whole noise to its own message.",
    "distributed": "Here every owner adds a share of the noise, and nobody is taken to see more of "
    "the messages than their sum.",
}

OPTIMIZER_SETTINGS = {
    "sgd": {"momentum": "momentum"},
    "adam": {"β₁": "beta1", "β₂": "beta2", "ε": "adam_epsilon"},
}
AUDIT_MODES = {
    "participant": "The beliefs were computed by the adversary itself, from what an owner receives "
    "and the background knowledge of the threat model.",
    "instrumented": "The beliefs were computed by the auditor, from the noise that was drawn; they "
    "are the adversary's, which it would have computed at greater cost.",
}

PAC_MEANING = (
    "The mutual information between the secret and everything that was released bounds how often "
    "anybody guesses it: on average over the stated prior, not for each person and not in the "
    "worst case, and it is not differential privacy."
)

NO_LIMIT_OF_BELIEF = (
    "The belief of the most extreme trial. PAC privacy is about averages and sets it no limit."
)
UNCLIPPED_BELIEF = "The belief of the most extreme trial. Without clipping nothing sets it a limit."
UNCLIPPED = "gradients are not clipped: nothing bounds what one record can change"

VAGUE = 0.5
"""How wide the interval of the share of trials won is where the share is no finding."""

ATTACKS = {
    "yeom": ("Yeom", "Yeom: members are those with at most the mean loss"),
    "yeom_challenge": ("Yeom on the\nchallenge record", "Yeom on the challenge record alone"),
}
CLIENT_ATTACK = (
    "Yeom on the\nchallenged owner",
    "Yeom on the challenged owner: by the mean loss of its records",
)
"""The attack on the challenge where that is not a record."""
SHORT = {"trajectory": "LiRA on all\nglobal models"}
"""Of the attacks on the challenge by losses, those that are drawn: the one that sees most."""


@dataclass(frozen=True)
class Label:
    """What every reader must know before the numbers."""

    title: str
    text: str


@dataclass(frozen=True)
class Mark:
    """How a measurement stands to its limit; kind is good, caution or alarm."""

    kind: str
    text: str


@dataclass(frozen=True)
class Row:
    """One measured thing, its limit, and what both mean."""

    name: str
    answer: str
    limit: str
    reading: str
    detail: str = ""
    mark: Mark | None = None


def verdict(report: Report) -> str:
    """Return the one sentence for everybody: how often the adversary was right, and the limit."""
    vantage = plain(at(report, "vantage"))
    who = WHO.get(vantage, f"An adversary at the vantage “{vantage}” who knew everything")
    limit = advantage_limit(report)
    before, after = _far_from_a_finding(report), _canaries_prove(report)
    if is_halves(report):
        who = who.replace("everything", "all candidates for the data")
        whose = _made(report) or "this one person's record"
        asked = f"which of them was used, and was asked whether {whose} was in it, answered"
        asked += " correctly"
        allowed = _pac_allows(report)
        return f"{before}{who} but not {asked} in {_how_often(report)} {allowed}{after}"
    if is_pac(report):
        allowed = _pac_allows(report)
    elif limit is None:
        allowed = "For this vantage theory states no limit."
    elif limit >= 1:
        allowed = "Theory sets no limit below 100%: the adversary may always be right."
    else:
        allowed = f"Theory allows at most {percent((1 + limit) / 2)}."
    return (
        f"{before}{who} except {_secret(report)} answered that question correctly in "
        f"{_how_often(report)} {allowed}{after}"
    )


def _secret(report: Report) -> str:
    """Word the question of the game by what is in question."""
    replaced = at(report, "neighbouring") == "replace"
    if is_client(report):
        if replaced:
            return "which of two sets of data this one owner used"
        return "whether this one owner's data were used"
    copies, made = at(report, "challenge.records") or 1, _made(report)
    of, used = ("", "was used") if copies == 1 else (f"{plain(copies)} copies of ", "were used")
    if made:
        opposite = at(report, "challenge.kind") == "gradient"
        other = f" or {of}{'its opposite' if opposite else 'the original record'}"
        return f"whether {of}{made} {used}{other * replaced}"
    if not replaced:
        return f"whether {of}this one person's record {used}"
    return "which of two people's records was used" + f", in {plain(copies)} copies," * bool(of)


def _made(report: Report) -> str:
    """Name what was made and is no person's; "" where a record of D is in question."""
    kind = at(report, "challenge.kind") or "record"
    if kind == "record":
        return ""
    return f"a {'gradient' if kind == 'gradient' else 'record'} that was made for the audit"


def _how_often(report: Report) -> str:
    return (
        f"{percent(_success(report))} of {_trials(report)}, where tossing a coin is right in 50%."
    )


def _trials(report: Report) -> str:
    trials = at(report, "trials")
    return f"{plain(trials)} trial{'s' * (trials != 1)}"


def _far_from_a_finding(report: Report) -> str:
    """Return a sentence ahead of the others where so few trials prove little; else ""."""
    between = _success_interval(report)
    if between is None or between[1] - between[0] < VAGUE:
        return ""
    return (
        f"No finding yet: by {_trials(report)} the adversary may be right in anything from "
        f"{percent(between[0])} to {percent(between[1])} ({confidence_of(report)}interval). "
    )


def _success_interval(report: Report) -> Interval | None:
    """Return the interval of how often the adversary is right; of one world, of its trials."""
    if advantage := interval_at(report, "empirical.advantage_interval"):
        return (1 + advantage[0]) / 2, (1 + advantage[1]) / 2
    wins, ties, confidence = (at(report, f"empirical.{n}") for n in ("wins", "ties", "confidence"))
    trials = at(report, "trials")
    if None in (wins, ties, confidence, trials):
        return None
    high = clopper_pearson(wins + ties, trials, confidence).high
    return clopper_pearson(wins, trials, confidence).low, high


def _canaries_prove(report: Report) -> str:
    """Return the headline of the one-run audit as a sentence; "" where there is none."""
    bound = one_run_report.headline(report)
    if bound is None:
        return ""
    return (
        f" The canaries of one trial prove ε ≥ {number(bound['epsilon'])} with "
        f"{percent(bound['confidence'])} confidence ({one_run_report.HEADLINE_NAME}); claimed is "
        f"ε = {_or_infinite(at(report, 'one_run.claimed_epsilon'))}."
    )


def _pac_allows(report: Report) -> str:
    return (
        f"PAC privacy allows at most {percent(at(report, 'pac.success_bound'))} on average over "
        "its stated prior; differential privacy sets no limit here."
    )


def standing(report: Report) -> str:
    """Return the measured advantage, its interval and its limit as a sentence."""
    interval = interval_at(report, "empirical.advantage_interval")
    between = f" ({confidence_of(report)}interval {span(interval, number)})" if interval else ""
    return (
        f"On the scale of advantage, from 0 (a coin) to 1 (certainty), that is "
        f"{number(at(report, 'empirical.advantage'))}{between}; the limit "
        f"{'of PAC privacy' if is_pac(report) else 'ρα'} is {number(advantage_limit(report))}."
    )


def labels(report: Report) -> list[Label]:
    """Return what keeps the run from being a release with a guarantee."""
    labels = []
    if unclipped := not is_clipped(report):
        text = (
            "Nothing bounds what one record can change, so that no amount of noise is a guarantee "
            "for everybody. What the adversary achieved here is measured all the same."
        )
        labels.append(Label("Gradients are not clipped: no DP guarantee.", text))
    local, seeded = (
        at(report, "mechanism.sensitivity") == "local",
        at(report, "noise_source") == "seed",
    )
    if local:
        text = (
            f"The noise was scaled to the local sensitivity of {_challenge(report)}, which depends "
            "on the data: an instrument that measures how tight the theory is."
        )
        labels.append(Label("Measurement, not a DP guarantee.", text))
    if is_pac(report):
        text = (
            "The noise was shaped by how the stated candidates differ, and hides nothing along "
            "directions in which they do not: a bound on information about which of them was used."
        )
        labels.append(Label("PAC noise, not a DP guarantee.", text))
    if seeded:
        text = (
            f"It comes from seed {plain(at(report, 'seed'))}, and whoever knows the seed can "
            "take it away again: fit for measuring, not for protecting people."
        )
        labels.append(Label("Experiment: noise is reproducible, not a DP guarantee.", text))
    instrumented = at(report, "audit_mode") == "instrumented"
    if instrumented:
        text = (
            "The auditor computed the beliefs from the noise, which the owners handed over: the "
            "same numbers as the adversary's own, at less cost, in a federation that protects "
            "nobody."
        )
        labels.append(Label("Instrumented audit, not a DP guarantee.", text))
    simulated = at(report, "mechanism.rounding.secure_aggregation") == "simulated"
    if simulated:
        text = (
            "The server summed the messages in the clear, each under one owner's share of the "
            "noise; what is stated towards it is as if they had been aggregated securely."
        )
        labels.append(Label("Simulated secure aggregation, not a DP guarantee.", text))
    released = bool(at(report, "bayesian"))
    if released:
        text = (
            "For the Bayesian accountant the owners handed over norms or distances of their "
            "records' gradients as they are."
        )
        labels.append(Label("Gradient distances were released: not a DP guarantee.", text))
    named = unclipped or local or seeded or instrumented or simulated or released
    named = named or is_pac(report)
    if at(report, "mechanism.dp_guarantee") is False and not named:
        labels.append(Label("Not a DP guarantee.", at(report, "mechanism.dp_note") or ""))
    return labels


def trust(report: Report) -> str:
    """Say who added the noise, how the messages were summed, and what the bounds count on."""
    words = TRUST.get(str(at(report, "trust")), "")
    if at(report, "mechanism.rounding"):
        words += (
            f" They were {at(report, 'mechanism.rounding.note')}, as integers: for the rounding "
            "the noise, like the sensitivity, is "
            f"{percent(at(report, 'mechanism.rounding.relative_growth'))} larger."
        )
    if colluding := at(report, "colluding"):
        words += (
            f" {colluding} of the {at(report, 'owners')} owners told the adversary their noise, "
            "and the bounds count on none of it."
        )
    if local_steps(report) > 1:
        words += (
            " Owners take several steps of their own in a round, each at a model that only their "
            "own noise hides; so the bounds grant every vantage all of these steps."
        )
    return words


def training(report: Report) -> list[str]:
    """Return, in whole sentences, what a step is, how the model takes it, and who audited it."""
    rounds, local = at(report, "rounds"), local_steps(report)
    rate = plain(at(report, "mechanism.sampling_rate"))
    if is_sampled(report):
        step = (
            f"In each of {plain(rounds)} rounds every record took part with probability "
            f"{rate}, by itself (Poisson sampling). The bounds count on it that nobody learns "
            "whether the challenge record did; the adversary is taken to know of all others."
        )
    elif local > 1:
        step = (
            f"In each of {plain(rounds)} rounds every owner took {local} noisy steps on a model "
            f"of its own: {plain(at(report, 'mechanism.steps'))} noisy steps are accounted. The "
            "adversary sees only their sum, and decides by a linearised attack's score."
        )
    elif is_halves(report):
        step = (
            f"In each of {plain(rounds)} rounds the records of the trial's secret candidate took "
            "part, one of several random halves of the records of all owners but the adversary."
        )
    elif is_client(report):
        epochs, size = (at(report, f"training.{key}") for key in ("local_epochs", "batch_size"))
        step = (
            f"In each of {plain(rounds)} rounds every owner trained a copy of the model on its own "
            f"records, without noise, for {plain(epochs)} epoch{'s' * (epochs != 1)} in "
            f"{f'batches of {plain(size)}' if size else 'one batch'}, and sent how far it came, "
            "clipped as a whole. Only that is accounted for, whatever the owner did in between."
        )
    else:
        step = f"In each of {plain(rounds)} rounds every record took part, in one step."
    sentences = [step, _optimisation(report), _audited(report), _gradients(report)]
    return [sentence for sentence in sentences if sentence]


def _optimisation(report: Report) -> str:
    if at(report, "training.optimizer") is None:
        return ""
    optimizer, schedule, rate, local_rate, warmup = (
        at(report, f"training.{key}")
        for key in (
            "optimizer",
            "schedule",
            "learning_rate",
            "local_learning_rate",
            "warmup_rounds",
        )
    )
    settings = ", ".join(
        f"{name} {plain(value)}"
        for name, key in OPTIMIZER_SETTINGS.get(optimizer, {}).items()
        if (value := at(report, f"training.{key}"))
    )
    return (
        f"The server's optimiser was {plain(optimizer)}{f' ({settings})' if settings else ''}, "
        f"its learning rate {plain(rate)} on the schedule {plain(schedule)}"
        f"{f' after {plain(warmup)} rounds of warm-up' if warmup else ''}"
        f"{f', that of the owners {plain(local_rate)}' if local_rate else ''}. It works on what "
        "is released anyway and costs no privacy."
    )


def _audited(report: Report) -> str:
    return AUDIT_MODES.get(str(at(report, "audit_mode")), "")


def _gradients(report: Report) -> str:
    """Say in which precision and by which rules per-example gradients were clipped."""
    precision, fallbacks = at(report, "precision"), at(report, "model.gradient_fallbacks")
    if precision is None:
        return ""
    sentence = f"Forward and backward passes ran in {plain(precision)}"
    if fallbacks is None:
        return f"{sentence}."
    if not isinstance(fallbacks, Mapping) or not fallbacks:
        clipped = is_clipped(report) and not is_client(report)
        what = "was clipped" if clipped else "gave its gradients"
        return f"{sentence}; every layer {what} by its own rule."
    layers = "; ".join(f"{name} ({plain(reason)})" for name, reason in fallbacks.items())
    return f"{sentence}; layers whose gradients went through torch.func: {layers}."


def is_alarming(report: Report) -> bool:
    """Whether a measurement contradicts theory beyond chance, which the audit decides."""
    return bool(at(report, "alarms"))


def questions(report: Report) -> list[Row]:
    """Return the table at the top: question, answer, limit, reading."""
    limit, advantage = advantage_limit(report), interval_at(report, "empirical.advantage_interval")
    success = ((1 + advantage[0]) / 2, (1 + advantage[1]) / 2) if advantage else None
    predicted = at(report, "prediction.advantage")
    largest = at(report, "empirical.epsilon.belief")
    if largest is None and is_unprotected(report):
        largest = math.inf if at(report, f"vantages.{at(report, 'vantage')}") else None
    surer = interval_at(report, "empirical.delta_prime_interval")
    tail = at(report, "bounds.tail_probability")
    rows = [
        Row(
            "How often was the adversary right?",
            percent(_success(report)),
            percent(None if limit is None else (1 + limit) / 2),
            "A coin is right in 50%."
            + ("" if predicted is None else f" Predicted: {percent((1 + predicted) / 2)}."),
            f"{confidence_of(report)}interval {span(success, percent)}" if success else "",
            against(report, advantage_alarm(report), advantage, limit),
        ),
        Row(
            "How sure did it become at most?",
            percent(None if largest is None else float(expit(largest))),
            percent(rho_beta_of(report)),
            "The belief of the most extreme trial. The limit ρβ may be passed, but no more often "
            f"than the next row allows.{score_caution(report)}",
        ),
        Row(
            "How often was it surer than ρβ?",
            percent(at(report, "empirical.delta_prime")),
            percent(tail),
            f"Of the trials on D, with {_challenge(report)} (δ′). The limit is the tail of the "
            f"privacy loss, which is not δ.{score_caution(report)}",
            f"{confidence_of(report)}interval {span(surer, percent)}" if surer else "",
            None if score_caution(report) else against(report, "delta_prime", surer, tail),
        ),
    ]
    if is_pac(report) or not is_clipped(report):
        # Without a limit of the belief nothing can be surer than it.
        reading = NO_LIMIT_OF_BELIEF if is_pac(report) else UNCLIPPED_BELIEF
        rows[1:] = [replace(rows[1], limit=DASH, reading=reading + score_caution(report))]
    by_canaries = _proven_by_canaries(report)
    rows += [by_canaries] if by_canaries else []
    if proven := _proven(report):
        unlimited = proven.limit == INFINITE
        rows.append(
            Row(
                "How much do the trials prove beside it?"
                if by_canaries
                else "How much privacy loss is proven?",
                "nothing" if proven.answer == DASH else f"ε ≥ {proven.answer}",
                DASH if unlimited else f"ε ≤ {proven.limit}",
                f"By {proven.name}, which assumes {_assumed(report)}. "
                f"{_gap(proven.mark, unlimited, 'trials')}",
                mark=proven.mark,
            )
        )
    rows += [
        Row(
            "Does the final model betray its members?",
            number(at(report, "membership_inference.yeom.advantage")),
            _yeom_limit(report),
            "Advantage of membership inference (Yeom), which knows far less than the adversary."
            + " It asks about single records, which the bounds are not about." * is_client(report),
        ),
        Row(
            "What is the model worth?",
            first_to_last(report, "accuracy", percent),
            DASH,
            "Accuracy before the first and after the last round.",
        ),
    ]
    return rows


def game(report: Report) -> str:
    """Say what is played in every trial, and what advantage and belief are."""
    advantage = "Advantage is its true-positive rate less its false-positive rate"
    if is_halves(report):
        return (
            "The game: in every trial the federation is trained afresh, on a secret candidate: one "
            f"of {plain(at(report, 'pac.candidates'))} random halves of the records of all owners "
            "but the adversary. The adversary knows all candidates, and the mechanism, but not "
            "which it is, and must tell whether the challenge record is in it. "
            f"{advantage}; belief is the probability that it assigns to the record's being in it "
            "by Bayes' rule."
        )
    return (
        f"The game: in every trial the federation is trained afresh, on the data D with "
        f"{_challenge(report)} or on the neighbouring D′{_neighbour(report)}. The adversary knows "
        f"both, and the mechanism, and must tell which it was. {advantage}; belief is the "
        "probability that it assigns to D by Bayes' rule."
    )


def _challenge(report: Report) -> str:
    """Name what is in question."""
    if not is_client(report):
        copies = at(report, "challenge.records") or 1
        return "the challenge record" if copies == 1 else f"{plain(copies)} challenge records"
    owner, records = (plain(at(report, f"challenge.{key}")) for key in ("owner", "records"))
    return f"all {records} records of owner {owner}"


def _neighbour(report: Report) -> str:
    """Say how D' differs where all data of an owner are in question."""
    if not is_client(report):
        return ""
    if at(report, "neighbouring") == "replace":
        return ", where as many others take their place"
    return ", where it has none and its update is 0; that it takes part is no secret"


def _single_records(report: Report) -> Entries:
    """Return what the protection of whole owners means for one record; nothing for other units."""
    if not is_client(report) or at(report, "mechanism.sensitivity") == "local":
        return []
    multiplier = at(report, "mechanism.effective_noise_multiplier")
    halved = at(report, "neighbouring") != "replace"
    if multiplier is not None and halved:
        multiplier /= 2
    return [
        ("Unit of privacy", "all data of one owner"),
        (
            "What follows for one record",
            f"replace neighbours at noise multiplier {number(multiplier)}: any change to one "
            "owner's records moves its clipped update by at most 2C"
            + (", which is two sensitivities" if halved else ", which is the sensitivity"),
        ),
    ]


def _yeom_limit(report: Report) -> str:
    """Word the bound on membership inference, which is about the unit of privacy."""
    bound = at(report, "bounds.yeom_bound")
    if is_client(report):
        return DASH
    return f"none (e^ε − 1 = {number(bound)})" if (bound or 0) >= 1 else number(bound)


def vantages(report: Report) -> list[dict[str, Any]]:
    """Return the bounds of every vantage point, worded."""
    rows = []
    for row in at(report, "bounds.vantages") or []:
        infinite = row.get("noise_multiplier") == 0
        what = "an owner's data" if is_client(report) else "the record"
        note = row.get("note") or (f"nothing hides {what} here" if infinite else "")
        if is_pac(report) and row.get("vantage") != "server":
            note = "no bound by differential privacy: see PAC privacy below"
        row_of = at(report, f"vantages.{row.get('vantage')}") or {}
        if row_of.get("note") and not is_pac(report):
            note = row_of["note"]
        rows.append(
            {
                "vantage": row.get("vantage"),
                "audited": row.get("vantage") == at(report, "vantage"),
                "noise_multiplier": number(row.get("noise_multiplier")),
                "epsilon": number(math.inf if infinite else row.get("epsilon")),
                "rho_beta": percent(1.0 if infinite else row.get("rho_beta")),
                "rho_alpha": number(1.0 if infinite else row.get("rho_alpha")),
                "predicted": number(at(row_of, "prediction.advantage")),
                "measured": number(at(row_of, "empirical.advantage")),
                "interval": span(interval_at(row_of, "empirical.advantage_interval"), number),
                "mark": _standing_of(report, row_of),
                "note": note,
            }
        )
    return rows


def _standing_of(report: Report, row: Report) -> Mark | None:
    """Return how one vantage's measurement stands to its bound and its prediction."""
    within, near = at(row, "empirical.within_bound"), at(row, "empirical.near_prediction")
    if within is None or is_pac(report):
        return None
    if (at(row, "rho_alpha") or 0) >= 1:
        return Mark("caution", "No protection")
    if not within:
        return Mark("alarm", "Above the limit")
    if near is False:
        return Mark("caution", "Apart from the prediction")
    return Mark("good", "Within the limit")


def bounds(report: Report) -> Entries:
    """Return the bounds of the audited vantage point, worded."""
    bounds = at(report, "bounds") or {}
    epsilon = epsilon_of(report, "epsilon")
    if is_pac(report):
        why = "PAC noise hides nothing along directions in which the candidates do not differ"
    elif is_clipped(report):
        what = "an owner's data" if is_client(report) else "the record"
        why = f"no noise hides {what} at this vantage"
    else:
        why = UNCLIPPED
    reason = f" ({why})" if epsilon == INFINITE else ""
    accountant = plain(bounds.get("accountant"))
    return [
        *_single_records(report),
        (f"ε at δ = {plain(bounds.get('delta'))}", f"{epsilon}{reason}, accountant {accountant}"),
        ("ε by exact accounting", epsilon_of(report, "tight_epsilon")),
        ("ρβ, limit of the belief", f"{number(rho_beta_of(report))} (from the ε above)"),
        ("ρβ by exact accounting", number(bounds.get("tight_rho_beta"))),
        (
            "ρα, limit of the advantage",
            f"{number(rho_alpha_of(report))} "
            f"({'PAC privacy has one of its own' if is_pac(report) else 'from the noise used'})",
        ),
        ("Tail: how often ρβ may be passed", number(bounds.get("tail_probability"))),
        (
            "paper (Theorem 2), not a bound",
            f"{number(bounds.get('theorem2_rho_alpha'))}: presumes the classic noise scale",
        ),
        ("Yeom's bound e^ε − 1", number(bounds.get("yeom_bound"))),
    ]


def pac(report: Report) -> Entries:
    """Return what PAC privacy says about the run, worded; nothing in reports from before it."""
    found = at(report, "pac")
    if not found:
        return []
    realised = found.get("realised_information")
    endless = is_unprotected(report) and not is_pac(report)
    equivalent = number(found.get("equivalent_epsilon"))
    if found.get("success_bound") == 1:
        equivalent = INFINITE
    information = number(math.inf if endless else found.get("mutual_information"))
    return [
        ("Stated prior", f"{plain(found.get('prior_description'))}: right in 50% by guessing"),
        (
            "Mutual information at most",
            f"{information} nats over all rounds"
            + ("" if realised is None else f" (realised {number(realised)} by log det, mean)"),
        ),
        ("Success of any guess at most", percent(found.get("success_bound"))),
        *_candidate(report),
        ("Success measured", percent(found.get("success"))),
        (
            "Advantage at most",
            f"{number(found.get('advantage_bound'))}"
            + ("" if is_pac(report) else f" (beside ρα {number(rho_alpha_of(report))})"),
        ),
        (
            "Equivalent ε, not a guarantee",
            f"{equivalent} at δ = {plain(found.get('delta'))}: the ε whose bound on success is the "
            "same",
        ),
    ]


def _candidate(report: Report) -> Entries:
    """Return how often the secret one of several candidates can be named; nothing for a pair."""
    bound, candidates = at(report, "pac.candidate_success_bound"), at(report, "pac.candidates")
    if not is_halves(report) or bound is None or not candidates:
        return []
    return [
        (
            f"Naming which of the {plain(candidates)} candidates",
            f"right at most in {percent(bound)}, in {percent(1 / candidates)} by guessing",
        )
    ]


def bayesian(report: Report) -> Entries:
    """Return what the Bayesian accountant says, beside DP; nothing where it was not asked."""
    found = at(report, "bayesian")
    if not found:
        return []
    trials, replaced = plain(found.get("trials")), at(report, "neighbouring") == "replace"
    reason = "" if is_clipped(report) else f" ({UNCLIPPED})"
    share, delta = f"{100 * (at(found, 'percentile') or 0):g}%", plain(found.get("delta"))

    def over_trials(name: str) -> str:
        value = at(found, name)
        if not isinstance(value, Mapping):
            return DASH
        mean, largest = (
            INFINITE if value.get(which) is None else number(value[which])
            for which in ("mean", "max")
        )
        return f"{mean} (mean of {trials} trials; largest {largest})"

    def epsilon(name: str) -> str:
        value = at(found, name)
        return f"{INFINITE}{reason}" if value is None and reason else number(value)

    orders, note = interval_at(found, "orders"), at(found, "note")
    entries = [
        (f"Bayesian ε at δ = {delta}", over_trials("epsilon")),
        (f"Bayesian ε, each of {share} of people", over_trials("epsilon_at_percentile")),
        ("ε of DP, everybody", epsilon("dp_epsilon")),
        ("Bayesian ε were all gradients at the bound", epsilon("worst_case_epsilon")),
        (
            "Estimated from",
            f"{plain(found.get('pairs'))} {'pairs of records' if replaced else 'records'} in every "
            f"round; γ = {number(found.get('gamma'))} of δ is for the estimate's failure",
        ),
        ("Orders λ that decided", span(orders, number) or DASH),
    ]
    return entries + ([("Note", plain(note))] if note else [])


def bayesian_reading(report: Report) -> list[str]:
    """Return, in whole sentences, what the Bayesian epsilon means and what it does not."""
    share = f"{100 * (at(report, 'bayesian.percentile') or 0):g}%"
    sentences = [
        "A statement for a person whose record comes from the same distribution as the training "
        "data; no guarantee for outliers, and the distances that it rests on were themselves "
        "released without protection.",
    ]
    if at(report, "bayesian.epsilon") is not None:
        sentences.append(
            "With probability 1 − δ, over the noise and over who that person is, the privacy loss "
            f"stays below the first ε; for each single one of {share} of such people, over the "
            "noise alone, below the second."
        )
    mine, everybody = (at(report, f"bayesian.{name}") for name in ("epsilon.mean", "dp_epsilon"))
    if mine is not None and everybody is not None and everybody <= mine:
        sentences.append(
            "Here it adds nothing to DP, whose ε is no larger and holds for everybody: the "
            "gradients are nearly as long as clipping allows, or too few were compared, or this "
            "accountant's bound (Chernoff's, and under sampled replacement one by convexity) is "
            "looser than the loss distribution that DP is accounted by."
        )
    return sentences


def budget(report: Report) -> str:
    """Say in a sentence what the rounds have spent, by which account, and what ended them."""
    run, planned, earlier, stop_at = (
        at(report, f"budget.{name}")
        for name in ("rounds_run", "rounds_planned", "earlier_attempts", "stop_at")
    )
    spent = at(report, f"budget.epsilon.{at(report, 'budget.vantage')}")
    delta, other = at(report, "budget.delta"), at(report, "budget.stop_at_delta")
    limit = f"privacy.stop-at = {number(stop_at)}"
    limit += "" if other == delta else f" at δ = {plain(other)}"
    if at(report, "budget.stopped"):
        ending = f", where {limit} left no room for another" if stop_at else ""
    else:
        ending = f", within {limit}" if stop_at else "; no limit was set"
    before = f" Interrupted attempts had released {plain(earlier)} rounds before the first." * bool(
        earlier
    )
    whose = "an owner's data have" if is_client(report) else "a person's record has"
    return (
        f"After {plain(run)} of {plain(planned)} planned rounds {whose} spent "
        f"ε = {INFINITE if spent is None else number(spent)} towards the vantage "
        f"{plain(at(report, 'budget.vantage'))} at δ = {plain(delta)} "
        f"(accountant {plain(at(report, 'budget.accountant'))}){ending}.{before}"
    )


def estimates(report: Report) -> list[Row]:
    """Return the paper's estimates of epsilon, and what each is worth."""
    epsilon = epsilon_of(report, "epsilon")
    comparable = at(report, "bounds.accountant") == CLASSIC
    return [
        Row(
            "from sensitivities, exact",
            _measured_epsilon(report, "sensitivity_exact"),
            epsilon_of(report, "tight_epsilon"),
            _worth_of_sensitivities(report),
        ),
        Row(
            "from sensitivities, classic RDP",
            _measured_epsilon(report, "sensitivity"),
            epsilon if comparable else DASH,
            "The same in the paper's accounting, which is looser: compares only with an ε of "
            f"the accountant {CLASSIC}.",
        ),
        Row(
            "from belief",
            _measured_epsilon(report, "belief"),
            epsilon,
            "The largest log-odds of any trial (paper's estimator). An extreme value: it grows "
            f"with the number of trials and may pass ε.{score_caution(report)}",
        ),
        Row(
            "from advantage",
            _measured_epsilon(report, "advantage"),
            epsilon,
            "The paper's Eq. 15 with its missing factor 2. Presumes the classic noise scale: no "
            "statement about tightly calibrated noise.",
        ),
    ]


def _worth_of_sensitivities(report: Report) -> str:
    """Say what the estimator from sensitivities is worth for these steps."""
    sampled = is_sampled(report)
    if is_halves(report):
        return "None: no one distance describes candidates that differ in half of the records."
    if is_pac(report):
        return (
            "A tautology here: noise scaled to how far the candidates lie apart gives back the ε "
            "of this pair that the budget stands for."
        )
    if sampled and at(report, "neighbouring") == "replace":
        return (
            "None: where replaced records are sampled, the loss depends on both gradients and not "
            "only on how far they lie apart."
        )
    if at(report, "mechanism.sensitivity") == "local":
        return (
            "A tautology here: noise scaled to these very sensitivities gives the theory's own ε "
            "back."
        )
    how = ", each sampled step at the trial's root mean square ratio to the noise" * sampled
    return (
        f"Composes the steps with the sensitivities that occurred, largest trial{how}. Trusts the "
        f"claimed noise.{score_caution(report)}"
    )


def score_caution(report: Report) -> str:
    """Say where log-odds are no likelihood, of whatever takes them for one."""
    if at(report, "vantage") == "released-model":
        return " Of the released model it describes an attack's score and is not bounded."
    if local_steps(report) == 1:
        return ""
    return " With local steps it describes the score of a linearised attack and is not bounded."


def lower_bounds(report: Report) -> list[Row]:
    """Return the lower bounds on epsilon, and how each stands to theory."""
    limit = at(report, "bounds.tight_epsilon")
    rows = []
    for name in at(report, "empirical.lower_bounds") or {}:
        bound = f"empirical.lower_bounds.{name}"
        value, trusts = at(report, f"{bound}.epsilon"), at(report, f"{bound}.trusts_noise")
        mark = None
        reason = at(report, f"{bound}.reason")
        if value is not None and limit is not None and not reason:
            mark = _beside_theory(report, name, value, limit)
        method, assumes = (at(report, f"{bound}.{entry}") for entry in ("method", "assumes"))
        worth = [
            f"Method: {method}." if method else "",
            f"Assumes: {assumes}." if assumes else "",
            f"Says nothing here: {reason}." if reason else "",
            ""
            if trusts is None
            else f"{'Trusts' if trusts else 'Does not trust'} the noise claimed.",
        ]
        rows.append(
            Row(
                bounds_report.TITLES.get(name, str(name)),
                DASH if reason else number(value),
                epsilon_of(report, "tight_epsilon"),
                " ".join(filter(None, worth)),
                mark=mark,
            )
        )
    return rows


def _beside_theory(report: Report, alarm: str, value: float, limit: float) -> Mark:
    """Return how a lower bound on epsilon stands to the limit; alarm: its name among the alarms."""
    if alarm in (at(report, "alarms") or {}):
        return Mark("alarm", "Above theory")
    if value > limit:
        return Mark("caution", "Above theory, within chance")
    return Mark("good", "Consistent")


def prediction(report: Report) -> Entries:
    """Return what theory predicted for this run beside what happened."""
    alike = at(report, "prediction.deterministic")
    simulated = at(report, "prediction.method") == "simulation"
    error = at(report, "prediction.standard_error")
    if simulated:
        kind = "the signal-to-noise ratio were every step unsampled: not that of Λ, a mixture"
        how = " (the game played again with these gradient norms, this noise and sampling rate"
        how += "; alike in every trial)" if alike else "; approximate: they differ between trials)"
    else:
        how = ""
        if alike:
            kind = "the same in every trial: Λ ~ N(±μ²/2, μ²)"
        else:
            kind = "differs between trials: Λ is a mixture over them, and μ a summary"
    if local_steps(report) > 1:
        kind = "of the linearised attack; its score follows N(±μ²/2, μ²) at best roughly"
    if at(report, "prediction.method") == "none":
        kind = "no closed form: the log-odds are a mixture over the candidates"
    entries = [
        ("μ", f"{number(at(report, 'prediction.mu'))} ({kind})"),
        (
            "Advantage predicted",
            f"{number(at(report, 'prediction.advantage'))}"
            f"{f' ± {number(error)}' if error else ''}{how}",
        ),
        (
            "Advantage measured",
            f"{number(at(report, 'empirical.advantage'))} ± "
            f"{number(at(report, 'empirical.standard_error'))} {standard_errors_apart(report)}",
        ),
        (
            "Trials won, lost, tied",
            ", ".join(plain(at(report, f"empirical.{n}")) for n in ("wins", "losses", "ties")),
        ),
    ]
    for world, key in (("D", "world_d"), ("D′", "world_d_prime")):
        statistic = at(report, f"prediction.fit.{key}.statistic")
        p_value = at(report, f"prediction.fit.{key}.p_value")
        fit = f"Kolmogorov–Smirnov distance {number(statistic)}, p = {number(p_value)}"
        entries.append((f"Fit on {world}", DASH if statistic is None else fit))
    return entries


def attack_names(report: Report, name: str) -> tuple[str, str]:
    """Return the short and the long name of an attack by membership inference."""
    if name == "yeom_challenge" and is_client(report):
        return CLIENT_ATTACK
    if attack := LOSS_ATTACKS.get(name.replace("_", "-")):
        return SHORT.get(name, attack.title), f"{attack.title}, on the challenge"
    return ATTACKS.get(name, (name, name))


def inference(report: Report) -> list[dict[str, str]]:
    """Return the attacks by membership inference, worded."""
    rows = []
    for name in at(report, "membership_inference") or {}:
        attack = f"membership_inference.{name}"
        interval = interval_at(report, f"{attack}.advantage_interval")
        rows.append(
            {
                "attack": attack_names(report, name)[1],
                "advantage": number(at(report, f"{attack}.advantage")),
                "detail": span(interval, number),
                "tpr": percent(at(report, f"{attack}.tpr")),
                "fpr": percent(at(report, f"{attack}.fpr")),
                "area": number(at(report, f"{attack}.area")),
            }
        )
    return rows


def configuration(report: Report) -> list[tuple[str, Entries]]:
    """Return the settings of the run by section."""
    sections: dict[str, dict[str, str]] = {
        "Federation": {
            "Owners": "owners",
            "Owners colluding with the adversary": "colluding",
            "Rounds": "rounds",
            "Trials": "trials",
            "Trust": "trust",
            "Vantage": "vantage",
            "Unit of privacy": "unit",
            "Neighbouring": "neighbouring",
            "Runtime": "runtime",
            "Device": "device",
        },
        "Data and model": {
            "Dataset": "data.name",
            "Records": "data.records",
            "Held out": "data.held_out",
            "Partition": "data.partition",
            **({"Never split": "data.partition_key"} if at(report, "data.partition_key") else {}),
            "Records per owner": "data.owner_sizes",
            **({"Label skew": "data.label_skew"} if at(report, "data.label_skew") else {}),
            "Model": "model.name",
            "Parameters": "model.parameters",
            "Frozen": "model.frozen",
            "Frozen parameters": "model.frozen_parameters",
            "Batch norm": "model.batch_norm",
            "Precision": "precision",
            "Layers through torch.func": "model.gradient_fallbacks",
        },
        "Challenge": {
            "Record": "challenge.record",
            "Records in question": "challenge.records",
            "Replacement": "challenge.replacement",
            "Owner": "challenge.owner",
            "Adversary": "challenge.adversary",
            "Dissimilarity": "challenge.measure",
            "Distance": "challenge.distance",
        },
        "Mechanism": {
            "Noise multiplier": "mechanism.noise_multiplier",
            "Effective noise multiplier": "mechanism.effective_noise_multiplier",
            "Clipping norm C": "mechanism.clipping_norm",
            "Clipping": "mechanism.clipping",
            "Sensitivity": "mechanism.sensitivity",
            "Noise": "mechanism.noise",
            "Noisy steps accounted": "mechanism.steps",
            "Local steps in a round": "mechanism.local_steps",
            "Sampling rate": "mechanism.sampling_rate",
            **(ROUNDING if at(report, "mechanism.rounding") else {}),
            **(DROPOUTS if at(report, "dropouts") else {}),
            "DP guarantee": "mechanism.dp_guarantee",
            "Note": "mechanism.dp_note",
        },
        "Training": {
            "Learning rate": "mechanism.learning_rate",
            **{
                key.replace("_", " ").capitalize(): f"training.{key}"
                for key in at(report, "training") or {}
                if key not in _without_effect(report)
            },
            "Audit mode": "audit_mode",
        },
        "Randomness and versions": {
            "Seed": "seed",
            "Noise from": "noise_source",
            **{name: f"versions.{name}" for name in at(report, "versions") or {}},
        },
        "Seconds": {name: f"timing.{name}" for name in at(report, "timing") or {}},
    }
    return [
        (title, [(name, setting(at(report, path))) for name, path in entries.items()])
        for title, entries in sections.items()
        if entries
    ]


def _without_effect(report: Report) -> set[str]:
    """Return the keys of the training that did not matter, or stand elsewhere."""
    optimizer, schedule = at(report, "training.optimizer"), at(report, "training.schedule")
    idle = {"learning_rate"}
    for name, settings in OPTIMIZER_SETTINGS.items():
        idle |= set(settings.values()) if name != optimizer else set()
    idle |= {"decay_every", "decay_factor"} if schedule != "step" else set()
    if is_client(report):
        return idle
    idle |= {"local_epochs", "batch_size"}
    return idle | ({"local_learning_rate"} if local_steps(report) == 1 else set())


def scope(report: Report) -> str:
    """Return the size and the setting of the run in one line."""
    sampled = is_sampled(report)
    return " · ".join(
        (
            _trials(report),
            f"{plain(at(report, 'rounds'))} rounds",
            f"{plain(at(report, 'owners'))} owners",
            f"{plain(at(report, 'trust'))} trust",
            f"vantage: {plain(at(report, 'vantage'))}",
            f"neighbouring: {plain(at(report, 'neighbouring'))}",
            *(["unit of privacy: an owner's whole data"] * is_client(report)),
            *([f"sampling rate {plain(at(report, 'mechanism.sampling_rate'))}"] * sampled),
            *([f"{local_steps(report)} local steps"] * (local_steps(report) > 1)),
        )
    )


def against(
    report: Report, name: str, interval: Interval | None, limit: float | None
) -> Mark | None:
    """Return how a confidence interval stands to its limit; None without either."""
    if interval is None or limit is None:
        return None
    if limit >= 1:
        without_clipping = "No protection" if is_clipped(report) else "No guarantee"
        return Mark("caution", "No limit at this budget" if is_pac(report) else without_clipping)
    if name in (at(report, "alarms") or {}):
        return Mark("alarm", "Above the limit")
    if interval[0] > limit:
        return Mark("caution", "Above the limit, within chance")
    if interval[1] < limit:
        return Mark("good", "Below the limit")
    return Mark("good", "Compatible with the limit")


def advantage_alarm(report: Report) -> str:
    """Return the name of the alarm that says the advantage is above its limit."""
    return "pac_advantage" if is_pac(report) else "advantage"


def _measured_epsilon(report: Report, name: str) -> str:
    value = at(report, f"empirical.epsilon.{name}")
    if value is not None:
        return number(value)
    if is_pac(report):
        return DASH
    if is_unprotected(report) and is_clipped(report):
        return f"{INFINITE} (no noise)"
    if name == "advantage" and at(report, "empirical.advantage") == 1:
        return f"{INFINITE} (every trial won)"
    return DASH


def _proven(report: Report) -> Row | None:
    """Return the bound chosen in advance; to take the largest of several would cost confidence."""
    name = bounds_report.leading(report)
    if name is None:
        return None
    names = list(at(report, "empirical.lower_bounds") or {})
    return lower_bounds(report)[names.index(name)]


def _proven_by_canaries(report: Report) -> Row | None:
    """Return the headline of the one-run audit beside its claim; None where there is none."""
    bound = one_run_report.headline(report)
    if bound is None:
        return None
    value, limit = bound["epsilon"], at(report, "one_run.canary_epsilon")
    claimed = _or_infinite(at(report, "one_run.claimed_epsilon"))
    mark = None if limit is None else _beside_theory(report, "one_run", value, limit)
    return Row(
        "How much privacy loss is proven?",
        f"ε ≥ {number(value)}",
        DASH if limit is None else f"ε ≤ {number(limit)}",
        f"By the {one_run_report.HEADLINE_NAME}, of one canary. Claimed: ε = {claimed} towards a "
        f"participant. {_gap(mark, limit is None, 'canaries')}",
        f"one trial, {percent(bound['confidence'])} confidence",
        mark,
    )


def _gap(mark: Mark | None, unlimited: bool, few: str) -> str:
    """Say what lies between a lower bound and its limit; few: what there may be too few of."""
    if unlimited:
        return "Differential privacy sets no limit here that it could be held to."
    if mark is not None and mark.kind == "alarm":
        return "Chance does this rarely: repeat with another seed, then doubt the noise."
    return f"What it lacks of the limit is slack, or too few {few} to tell."


def _or_infinite(epsilon: float | None) -> str:
    return INFINITE if epsilon is None else number(epsilon)


def _assumed(report: Report) -> str:
    assumes = at(report, f"empirical.lower_bounds.{bounds_report.leading(report)}.assumes")
    return "only independent trials" if assumes == "independent trials" else plain(assumes)


def _success(report: Report) -> float | None:
    """Return the share of trials that the adversary won; ties are not won."""
    wins, trials = at(report, "empirical.wins"), at(report, "trials")
    return wins / trials if wins is not None and trials else None
