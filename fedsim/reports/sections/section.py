"""Facts about a run that several sections of its page need."""

from dataclasses import replace

from adversaries.attacks.membership_attacks import ATTACKS as LOSS_ATTACKS
from adversaries.registry import titled
from fedsim.audits.results.report import Report
from fedsim.audits.run import empirical
from fedsim.learning.training.criterion import AUC, BALANCED, judge
from fedsim.reports.document import worth
from fedsim.reports.document.blocks import Mark
from fedsim.reports.document.wording import DASH, counted, number, plain

TITLES = {
    "clopper_pearson": "Clopper–Pearson",
    "clopper_pearson_split": "Clopper–Pearson, split trials",
    "mu_gdp": "μ of Gaussian privacy",
    "gaussian": "Gaussian",
    "trade_off": "Sampled trade-off curve",
}


def is_client(report: Report) -> bool:
    return report.unit == "client"


def is_clipped(report: Report) -> bool:
    return report.mechanism.clipping


def is_sampled(report: Report) -> bool:
    """Return whether a record joins a round only with a probability below 1."""
    return report.mechanism.sampling_rate < 1


def takes_local_steps(report: Report) -> bool:
    return report.mechanism.local_steps > 1


def is_alarming(report: Report) -> bool:
    return bool(report.contradictions)


def challenge_of(report: Report) -> str:
    """Return the target in words, such as "the target record"."""
    challenge = report.challenge
    if is_client(report):
        return f"all {challenge.records} records of client {challenge.client}"
    what = "gradient" if challenge.kind == "gradient" else "record"
    if challenge.records == 1:
        return f"the target {what}"
    return f"{challenge.records} target {what}s"


def clients_of(report: Report) -> str:
    return "a client's data" if is_client(report) else "the record"


def trials_of(report: Report) -> str:
    return counted(report.trials, "trial")


def confidence_of(report: Report) -> str:
    """Return the confidence of every interval as the start of a phrase, such as "95% "."""
    return f"{100 * report.attack.confidence:g}% "


def at_delta(delta: float) -> str:
    return f"at δ = {plain(delta)}"


def is_scored(report: Report) -> bool:
    """Return whether log-odds are the score of an attack that counts draws, of unknown law."""
    return report.prediction.method == "none"


SCORED = "the belief is the score of an attack; ρβ does not limit such a score."


def score_caution(report: Report) -> str:
    if report.vantage == "released-model":
        return f" For the released model, {SCORED}"
    if takes_local_steps(report):
        return f" With local steps, {SCORED}"
    if is_scored(report):
        return f" {SCORED[:1].upper()}{SCORED[1:]}"
    return ""


def released(report: Report) -> str:
    total = report.released
    if total is None or not report.mechanism.dp_guarantee:
        return ""
    of = "the one training"
    if total.trainings > 1:
        of = f"all {total.trainings} trainings together"
    return (
        f"DP guarantee for everything released, by {of}: ε = {number(total.epsilon)} "
        f"{at_delta(total.delta)} towards the {total.vantage.replace('-', ' ')}."
    )


def worths_in_full(report: Report) -> str:
    """Return the criterion before and after the training, and whether the model has learnt."""
    utility, measured = report.utility, report.utility.measured
    if not utility.accuracy.mean:
        return DASH
    judged = judge(measured)
    worths = worth.as_text(judged.name, judged.value)
    if judged.name not in (AUC, BALANCED):
        first, loss = utility.accuracy.mean[0], utility.loss.mean[0]
        before = judge(replace(measured, accuracy=first, loss=loss)).value
        worths = f"{worth.as_text(judged.name, before)} → {worths}"
    beside = worth.beside(measured)
    warning = " ".join(worth.unless_learnt(measured, loss_before=utility.loss.mean[0]))
    return f"{worth.leading(judged.name)} {worths} ({beside}). {warning}".strip()


def model_in_short(report: Report) -> str:
    """Return the criterion beside a constant answer, and whether the model has learnt."""
    measured = report.utility.measured
    judged = judge(measured)
    texts = [f"{judged.name} {worth.as_text(judged.name, judged.value)}"]
    if measured.area_under_curve is not None and judged.name != AUC:
        texts.append(f"AUC {measured.area_under_curve:.3f}")
    learnt = "" if judged.has_learnt else "; it is not shown to have learnt anything"
    return f"{', '.join(texts)} ({worth.baseline(judged)}){learnt}"


def beside_theory(report: Report, name: str) -> Mark:
    """Return how a lower bound on epsilon stands to the limit; `name`: of bound and alarm."""
    if name in report.contradictions:
        return Mark("alarm", "Above theory")
    if report.empirical.lower_bounds[name].epsilon > report.here.limit.epsilon:
        return Mark("caution", "Above theory, within chance")
    return Mark("good", "Consistent")


def attack_name(name: str, client: bool) -> str:
    """Return the name of an attack by losses, and what it decides about."""
    if name == empirical.POPULATION:
        return "Yeom: members are the records with at most the mean loss"
    if name == empirical.CHALLENGE and client:
        return "Yeom on the target client: by the mean loss of its records"
    if name == empirical.CHALLENGE:
        return "Yeom on the target record alone"
    if attack := LOSS_ATTACKS.get(name):
        return f"{attack.title}, on the target"
    own = titled(name).rpartition(":")[2].replace("_", " ")
    return f"{own}, an attack of your own, on the target"
