"""Cautions about a run: why it is no release with a guarantee, or not the one it seems."""

from fedsim.audits.results.report import Report
from fedsim.report.document.blocks import Label
from fedsim.report.document.wording import number, plain
from fedsim.report.sections.facts import challenge_of, is_clipped, is_pac


def labels(report: Report) -> list[Label]:
    """Return what every reader must know before the numbers."""
    found = [Label(title, text) for applies, title, text in _cautions(report) if applies]
    if not found and not report.mechanism.dp_guarantee:
        found.append(Label("Not a DP guarantee.", report.mechanism.dp_note))
    if report.job == "rehearsal":
        found = [_rehearsal(report), *found[1:]] if report.noise_source == "seed" else found
    released = report.released
    if released is not None and released.trainings > 1:
        cost = f"ε = {number(released.epsilon)}"
        found.insert(
            0,
            Label(
                f"An experiment on these people, not one release: {cost} in all.",
                f"{released.trainings} trained models were released, each with its own noise: the "
                f"mean of all of them has much less noise. Together they cost {cost} at "
                f"δ = {plain(released.delta)}. Every other ε on this page is for one training.",
            ),
        )
    return found


def _rehearsal(report: Report) -> Label:
    """Return what stands in place of the caution that the noise is the seed's."""
    bounds, mechanism = report.bounds, report.mechanism
    return Label(
        f"Rehearsal of the training '{report.name}': not a DP guarantee to these records.",
        f"It stands for fedsim train of the same file: the same {report.rounds} rounds, gradients "
        f"clipped to {plain(mechanism.clipping_norm)}, noise multiplier "
        f"{number(mechanism.noise_multiplier)}, ε = {number(bounds.epsilon)} at "
        f"δ = {plain(bounds.delta)} towards the {report.vantage}. Here the noise comes from seed "
        f"{report.seed}: a reader of the seed can remove it.",
    )


def _cautions(report: Report) -> list[tuple[bool, str, str]]:
    """Return whether each caution applies, its title and its text."""
    rounding = report.mechanism.rounding
    return [
        (
            not is_clipped(report),
            "Gradients are not clipped: no DP guarantee.",
            "Nothing bounds what one record can change, so no amount of noise gives a guarantee. "
            "What the adversary achieved is measured nevertheless.",
        ),
        (
            report.mechanism.sensitivity == "local",
            "Measurement, not a DP guarantee.",
            f"The noise was scaled to the local sensitivity of {challenge_of(report)}, which "
            "depends on the data. Such a run measures how tight the theory is.",
        ),
        (
            is_pac(report),
            "PAC noise, not a DP guarantee.",
            "The noise was shaped by how the stated candidates differ. It hides nothing in "
            "directions in which they agree. It bounds the information about which one was used.",
        ),
        (
            report.noise_source == "seed",
            "Experiment: noise is reproducible, not a DP guarantee.",
            f"The noise comes from seed {report.seed}. A reader of the seed can remove it: use it "
            "for measuring, not for protecting people.",
        ),
        (
            report.audit_mode == "oracle",
            "Oracle audit, not a DP guarantee.",
            "The auditor computed the beliefs from the noise, which the clients disclosed. The "
            "numbers equal the adversary's own and cost less to compute, but this federation "
            "protects no one.",
        ),
        (
            rounding is not None and rounding.secure_aggregation == "simulated",
            "Simulated secure aggregation, not a DP guarantee.",
            "The server saw every message, each with one client's share of the noise. What is "
            "stated towards the server presumes that secure aggregation hides the single messages.",
        ),
        (
            report.bayesian is not None,
            "Gradient distances were released: not a DP guarantee.",
            "For the Bayesian accountant, the clients disclosed norms or distances of their "
            "records' gradients without noise.",
        ),
    ]
