"""What the adversary achieved: the sections of the page about what was measured.

`report` is the content of report.json.
"""

import math
from dataclasses import replace

from scipy.special import expit

from adversaries.attacks.membership_attacks import ATTACKS as LOSS_ATTACKS
from adversaries.statistics.intervals import clopper_pearson
from fedsim.audits import one_run_report
from fedsim.report import bounds_report, one_run_section
from fedsim.report.report_rows import Entries, Row, against, gap
from fedsim.report.report_values import (
    DASH,
    INFINITE,
    Interval,
    Report,
    advantage_limit,
    at,
    at_least,
    challenge_of,
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
    or_infinite,
    percent,
    plain,
    rho_beta_of,
    span,
    standard_errors_apart,
    trials_of,
    yeom_bound,
)

CLASSIC = "rdp-classic"
"""The accountant of the paper, which the empirical epsilon from sensitivities uses too."""

WHO = {
    "participant": "An adversary who took part in this federation and knew everything",
    "server": "An adversary who ran the server of this federation and knew everything",
    "released-model": "An adversary who saw only the released model and knew everything",
}
NO_LIMIT_OF_BELIEF = (
    "The belief of the most extreme trial. PAC privacy is about averages and sets it no limit."
)
UNCLIPPED_BELIEF = "The belief of the most extreme trial. Without clipping nothing sets it a limit."
VAGUE = 0.5
"""How wide the interval of the share of trials won is where the share is no finding."""

ATTACKS = {
    "yeom": ("Yeom", "Yeom: members are those with at most the mean loss"),
    "yeom_challenge": ("Yeom on the\nchallenge record", "Yeom on the challenge record alone"),
}
CLIENT_ATTACK = (
    "Yeom on the\nchallenged client",
    "Yeom on the target client: by the mean loss of its records",
)
"""The attack on the challenge where that is not a record."""
SHORT = {"trajectory": "LiRA on all\nglobal models"}
"""Of the attacks on the challenge by losses, those that are drawn: the one that sees most."""


def verdict(report: Report) -> str:
    """Return the one sentence for everybody: how often the adversary was right, and the limit."""
    vantage = plain(at(report, "vantage"))
    who = WHO.get(vantage, f"An adversary at the vantage “{vantage}” who knew everything")
    limit = advantage_limit(report)
    before, after = _far_from_a_finding(report), canaries_prove(report)
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
            return "which of two sets of data this one client used"
        return "whether this one client's data were used"
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
        f"{percent(_success(report))} of {trials_of(report)}, where tossing a coin is right in 50%."
    )


def _far_from_a_finding(report: Report) -> str:
    """Return a sentence ahead of the others where so few trials prove little; else ""."""
    between = _success_interval(report)
    if between is None or between[1] - between[0] < VAGUE:
        return ""
    return (
        f"No finding yet: by {trials_of(report)} the adversary may be right in anything from "
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


def canaries_prove(report: Report) -> str:
    """Return the headline of the one-run audit as a sentence; "" where there is none."""
    bound = one_run_section.headline(report)
    if bound is None:
        return ""
    return (
        f" The canaries of one trial prove {at_least(bound['epsilon'])} with "
        f"{percent(bound['confidence'])} confidence ({one_run_report.HEADLINE_NAME}); claimed is "
        f"ε = {or_infinite(at(report, 'one_run.claimed_epsilon'))}."
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
    tail, most = (at(report, f"bounds.{name}") for name in ("tail_probability", "tail_limit"))
    limited = most is not None and most < 1
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
            percent(most) if limited else DASH,
            f"Of the trials on D, with {challenge_of(report)} (δ′). The worst pair passes it in "
            f"{percent(tail)}, the tail of its privacy loss, which is not δ. A milder pair may do "
            f"so more often{', up to the limit' * limited}.{score_caution(report)}",
            f"{confidence_of(report)}interval {span(surer, percent)}" if surer else "",
            against(report, "delta_prime", surer, most)
            if limited and not score_caution(report)
            else None,
        ),
    ]
    if is_pac(report) or not is_clipped(report):
        # Without a limit of the belief nothing can be surer than it.
        reading = NO_LIMIT_OF_BELIEF if is_pac(report) else UNCLIPPED_BELIEF
        rows[1:] = [replace(rows[1], limit=DASH, reading=reading + score_caution(report))]
    by_canaries = one_run_section.proven(report)
    rows += [by_canaries] if by_canaries else []
    if leading := bounds_report.leading(report):
        proven = bounds_report.rows(report)[leading]
        unlimited = proven.limit == INFINITE
        value = at(report, f"empirical.lower_bounds.{leading}.epsilon")
        rows.append(
            Row(
                "How much do the trials prove beside it?"
                if by_canaries
                else "How much privacy loss is proven?",
                at_least(value),
                DASH if unlimited else f"ε ≤ {proven.limit}",
                f"By {proven.name}, which assumes {bounds_report.assumed(report)}. "
                f"{gap(proven.mark, unlimited, 'trials')}",
                mark=proven.mark if value else None,
            )
        )
    if "yeom" in report["membership_inference"]:  # else clients protect their records
        rows.append(_betrayal(report))
    rows.append(
        Row(
            "What is the model worth?",
            first_to_last(report, "accuracy", percent),
            DASH,
            "Accuracy before the first and after the last round.",
        )
    )
    return rows


def _betrayal(report: Report) -> Row:
    """Return the row about the final model's members."""
    fresh = interval_at(report, "membership_inference.yeom.advantage_interval")
    return Row(
        "Does the final model betray its members?",
        number(at(report, "membership_inference.yeom.advantage")),
        _yeom_limit(report),
        "Advantage of membership inference (Yeom), which knows far less than the adversary. "
        f"Its interval is over fresh records and trials{_of_these(report)}."
        + " It asks about single records, which the bounds are not about."
        * is_client(report),
        f"{confidence_of(report)}interval {span(fresh, number)}" if fresh else "",
    )


def game(report: Report) -> str:
    """Say what is played in every trial, and what advantage and belief are."""
    advantage = "Advantage is its true-positive rate less its false-positive rate"
    if is_halves(report):
        return (
            "The game: in every trial the federation is trained afresh, on a secret candidate: one "
            f"of {plain(at(report, 'pac.candidates'))} random halves of the records of all clients "
            "but the adversary. The adversary knows all candidates, and the mechanism, but not "
            "which it is, and must tell whether the challenge record is in it. "
            f"{advantage}; belief is the probability that it assigns to the record's being in it "
            "by Bayes' rule."
        )
    return (
        f"The game: in every trial the federation is trained afresh, on the data D with "
        f"{challenge_of(report)} or on the neighbouring D′{_neighbour(report)}. The adversary "
        f"knows both, and the mechanism, and must tell which it was. {advantage}; belief is the "
        "probability that it assigns to D by Bayes' rule."
    )


def _neighbour(report: Report) -> str:
    """Say how D' differs where all data of a client are in question."""
    if not is_client(report):
        return ""
    if at(report, "neighbouring") == "replace":
        return ", where as many others take their place"
    return ", where it has none and its update is 0; that it takes part is no secret"


def _yeom_limit(report: Report) -> str:
    """Word the bound on membership inference, which is about the unit of privacy."""
    bound = at(report, "bounds.yeom_bound")
    if is_client(report):
        return DASH
    return f"none ({yeom_bound(report)})" if (bound or 0) >= 1 else yeom_bound(report)


def _of_these(report: Report) -> str:
    """Word the interval for the records of the run alone."""
    own = interval_at(report, "membership_inference.yeom.advantage_interval_of_these")
    return f"; for these records it is {span(own, number)}" if own else ""


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
    return [
        {
            "attack": attack_names(report, name)[1],
            "advantage": number(found["advantage"]),
            "detail": span(interval_at(found, "advantage_interval"), number),
            # What goes by no threshold has no rates, and what gives no scores no area.
            **{rate: percent(found.get(rate)) for rate in ("tpr", "fpr")},
            "area": number(found.get("area")),
        }
        for name, found in report["membership_inference"].items()
    ]


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


def _success(report: Report) -> float | None:
    """Return the share of trials that the adversary won; ties are not won."""
    wins, trials = at(report, "empirical.wins"), at(report, "trials")
    return wins / trials if wins is not None and trials else None
