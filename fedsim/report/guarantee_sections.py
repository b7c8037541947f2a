"""What theory allows, and what is no guarantee: the sections of the page about bounds."""

import math
from collections.abc import Mapping
from typing import Any

from fedsim.audits.cautions import UNCLIPPED
from fedsim.report.report_rows import Entries, Label, Mark
from fedsim.report.report_values import (
    DASH,
    INFINITE,
    Report,
    at,
    challenge_of,
    epsilon_of,
    interval_at,
    is_client,
    is_clipped,
    is_halves,
    is_pac,
    is_unprotected,
    number,
    percent,
    plain,
    rho_alpha_of,
    rho_beta_of,
    span,
)

PAC_MEANING = (
    "The mutual information between the secret and everything that was released bounds how often "
    "anybody guesses it: on average over the stated prior, not for each person and not in the "
    "worst case, and it is not differential privacy."
)


def released(report: Report) -> str:
    """Say what a guarantee may speak of, all trainings together; "" where there is none."""
    found = at(report, "released")
    if not found or not at(report, "mechanism.dp_guarantee"):
        return ""
    count = found["trainings"]
    of = "the one training" if count == 1 else f"all {count} trainings together"
    return (
        f"DP guarantee for everything released, by {of}: ε = {number(found['epsilon'])} at "
        f"δ = {plain(found['delta'])} towards the {plain(found['vantage'])}, "
        f"ρβ = {number(found['rho_beta'])}."
        + f" The ε below, {number(found['epsilon_of_one_training'])}, is of one training, which an "
        "audit compares with, and guarantees nobody anything."
        * (count > 1)
        + f" {at(report, 'released.game') or ''}".rstrip()
    )


def labels(report: Report) -> list[Label]:
    """Return what keeps the run from being a release with a guarantee, or the one it looks like."""
    told = [
        (
            not is_clipped(report),
            "Gradients are not clipped: no DP guarantee.",
            "Nothing bounds what one record can change, so that no amount of noise is a guarantee "
            "for everybody. What the adversary achieved here is measured all the same.",
        ),
        (
            at(report, "mechanism.sensitivity") == "local",
            "Measurement, not a DP guarantee.",
            f"The noise was scaled to the local sensitivity of {challenge_of(report)}, which "
            "depends on the data: an instrument that measures how tight the theory is.",
        ),
        (
            is_pac(report),
            "PAC noise, not a DP guarantee.",
            "The noise was shaped by how the stated candidates differ, and hides nothing along "
            "directions in which they do not: a bound on information about which of them was used.",
        ),
        (
            at(report, "noise_source") == "seed",
            "Experiment: noise is reproducible, not a DP guarantee.",
            f"It comes from seed {plain(at(report, 'seed'))}, and whoever knows the seed can "
            "take it away again: fit for measuring, not for protecting people.",
        ),
        (
            at(report, "audit_mode") == "oracle",
            "Oracle audit, not a DP guarantee.",
            "The auditor computed the beliefs from the noise, which the clients handed over: the "
            "same numbers as the adversary's own, at less cost, in a federation that protects "
            "nobody.",
        ),
        (
            at(report, "mechanism.rounding.secure_aggregation") == "simulated",
            "Simulated secure aggregation, not a DP guarantee.",
            "The server summed the messages in the clear, each under one client's share of the "
            "noise; what is stated towards it is as if they had been aggregated securely.",
        ),
        (
            bool(at(report, "bayesian")),
            "Gradient distances were released: not a DP guarantee.",
            "For the Bayesian accountant the clients handed over norms or distances of their "
            "records' gradients as they are.",
        ),
    ]
    labels = [Label(title, text) for applies, title, text in told if applies]
    if not labels and at(report, "mechanism.dp_guarantee") is False:
        labels.append(Label("Not a DP guarantee.", at(report, "mechanism.dp_note") or ""))
    if (trainings := at(report, "released.trainings") or 1) > 1:
        epsilon = at(report, "released.epsilon")
        cost = f"ε = {INFINITE if epsilon is None else number(epsilon)}"
        labels.insert(
            0,
            Label(
                f"An experiment on these people, not one release: {cost} in all.",
                f"{trainings} trainings left, each under noise of its own: whoever has "
                f"all of them averages it away. {cost} at "
                f"δ = {plain(at(report, 'released.delta'))} is what they cost together; every "
                "other ε on this page is of one training.",
            ),
        )
    return labels


def vantages(report: Report) -> list[dict[str, Any]]:
    """Return the bounds of every vantage point, worded."""
    rows = []
    for row in at(report, "bounds.vantages"):
        infinite = row["noise_multiplier"] == 0
        what = "a client's data" if is_client(report) else "the record"
        note = row["note"] or (f"nothing hides {what} here" if infinite else "")
        if is_pac(report) and row["vantage"] != "server":
            note = "no bound by differential privacy: see PAC privacy below"
        row_of = report["vantages"][row["vantage"]]
        if row_of["note"] and not is_pac(report):
            note = row_of["note"]
        rows.append(
            {
                "vantage": row["vantage"],
                "audited": row["vantage"] == at(report, "vantage"),
                "noise_multiplier": number(row["noise_multiplier"]),
                "epsilon": number(math.inf if infinite else row["epsilon"]),
                "rho_beta": percent(1.0 if infinite else row["rho_beta"]),
                "rho_alpha": number(1.0 if infinite else row["rho_alpha"]),
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
    bounds = report["bounds"]
    epsilon = epsilon_of(report, "epsilon")
    if is_pac(report):
        why = "PAC noise hides nothing along directions in which the candidates do not differ"
    elif is_clipped(report):
        what = "a client's data" if is_client(report) else "the record"
        why = f"no noise hides {what} at this vantage"
    else:
        why = UNCLIPPED
    reason = f" ({why})" if epsilon == INFINITE else ""
    accountant = plain(bounds["accountant"])
    return [
        *_single_records(report),
        (f"ε at δ = {plain(bounds['delta'])}", f"{epsilon}{reason}, accountant {accountant}"),
        ("ε by exact accounting", epsilon_of(report, "tight_epsilon")),
        ("ρβ, limit of the belief", f"{number(rho_beta_of(report))} (from the ε above)"),
        ("ρβ by exact accounting", number(bounds["tight_rho_beta"])),
        (
            "ρα, limit of the advantage",
            f"{number(rho_alpha_of(report))} "
            f"({'PAC privacy has one of its own' if is_pac(report) else 'from the noise used'})",
        ),
        (
            "Tail: how often the worst pair passes ρβ",
            f"{number(bounds['tail_probability'])}; no pair in more than "
            f"{number(bounds['tail_limit'])}",
        ),
        (
            "paper (Theorem 2), not a bound",
            f"{number(bounds['theorem2_rho_alpha'])}: presumes the classic noise scale",
        ),
        ("Yeom's bound e^ε − 1, of pure ε", number(bounds["yeom_bound"])),
    ]


def _single_records(report: Report) -> Entries:
    """Return what the protection of whole clients means for one record; nothing for other units."""
    if not is_client(report) or at(report, "mechanism.sensitivity") == "local":
        return []
    multiplier = at(report, "mechanism.effective_noise_multiplier")
    halved = at(report, "neighbouring") != "replace"
    if multiplier is not None and halved:
        multiplier /= 2
    return [
        ("Unit of privacy", "all data of one client"),
        (
            "What follows for one record",
            f"replace neighbours at noise multiplier {number(multiplier)}: any change to one "
            "client's records moves its clipped update by at most 2C"
            + (", which is two sensitivities" if halved else ", which is the sensitivity"),
        ),
    ]


def pac(report: Report) -> Entries:
    """Return what PAC privacy says about the run, worded."""
    found = report["pac"]
    realised = found["realised_information"]
    endless = is_unprotected(report) and not is_pac(report)
    equivalent = number(found["equivalent_epsilon"])
    if found["success_bound"] == 1:
        equivalent = INFINITE
    information = number(math.inf if endless else found["mutual_information"])
    return [
        ("Stated prior", f"{plain(found['prior_description'])}: right in 50% by guessing"),
        (
            "Mutual information at most",
            f"{information} nats over all rounds"
            + ("" if realised is None else f" (realised {number(realised)} by log det, mean)"),
        ),
        *_released_information(report),
        ("Success of any guess at most", percent(found["success_bound"])),
        *_candidate(report),
        ("Success measured", percent(found["success"])),
        (
            "Advantage at most",
            f"{number(found['advantage_bound'])}"
            + ("" if is_pac(report) else f" (beside ρα {number(rho_alpha_of(report))})"),
        ),
        (
            "Equivalent ε, not a guarantee",
            f"{equivalent} at δ = {plain(found['delta'])}: the ε whose bound on success is the "
            "same",
        ),
    ]


def _released_information(report: Report) -> Entries:
    """Return what all trials told together; nothing where the noise is the seed's."""
    information, trials = at(report, "pac.released_information"), plain(at(report, "trials"))
    if information is None:
        return []
    return [(f"Told by all {trials} trials together", f"at most {number(information)} nats")]


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
    trials, replaced = plain(found["trials"]), at(report, "neighbouring") == "replace"
    reason = "" if is_clipped(report) else f" ({UNCLIPPED})"
    share, delta = f"{100 * (at(found, 'percentile') or 0):g}%", plain(found["delta"])

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
            f"{plain(found['pairs'])} {'pairs of records' if replaced else 'records'} in every "
            f"round; γ = {number(found['gamma'])} of δ is for the estimate's failure",
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
    spent, trainings = at(report, "budget.spent"), at(report, "released.trainings") or 1
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
    before += " The curve is of one of the trainings." * (trainings > 1)
    together = f" in all {plain(trainings)} trainings together" * (trainings > 1)
    whose = "a client's data have" if is_client(report) else "a person's record has"
    return (
        f"After {plain(run)} of {plain(planned)} planned rounds {whose} spent "
        f"ε = {INFINITE if spent is None else number(spent)}{together} towards the vantage "
        f"{plain(at(report, 'budget.vantage'))} at δ = {plain(delta)} "
        f"(accountant {plain(at(report, 'budget.accountant'))}){ending}.{before}"
    )
