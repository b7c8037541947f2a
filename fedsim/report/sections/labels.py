"""What keeps a run from being a release with a guarantee, or the one it looks like."""

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
                f"{released.trainings} trainings left, each under noise of its own: whoever has "
                f"all of them averages it away. {cost} at "
                f"δ = {plain(released.delta)} is what they cost together; every "
                "other ε on this page is of one training.",
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
        f"{report.seed}, and whoever knows that can take it away again.",
    )


def _cautions(report: Report) -> list[tuple[bool, str, str]]:
    """Return whether each caution applies, its title and its text."""
    rounding = report.mechanism.rounding
    return [
        (
            not is_clipped(report),
            "Gradients are not clipped: no DP guarantee.",
            "Nothing bounds what one record can change, so that no amount of noise is a guarantee "
            "for everybody. What the adversary achieved here is measured all the same.",
        ),
        (
            report.mechanism.sensitivity == "local",
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
            report.noise_source == "seed",
            "Experiment: noise is reproducible, not a DP guarantee.",
            f"It comes from seed {report.seed}, and whoever knows the seed can "
            "take it away again: fit for measuring, not for protecting people.",
        ),
        (
            report.audit_mode == "oracle",
            "Oracle audit, not a DP guarantee.",
            "The auditor computed the beliefs from the noise, which the clients handed over: the "
            "same numbers as the adversary's own, at less cost, in a federation that protects "
            "nobody.",
        ),
        (
            rounding is not None and rounding.secure_aggregation == "simulated",
            "Simulated secure aggregation, not a DP guarantee.",
            "The server summed the messages in the clear, each under one client's share of the "
            "noise; what is stated towards it is as if they had been aggregated securely.",
        ),
        (
            report.bayesian is not None,
            "Gradient distances were released: not a DP guarantee.",
            "For the Bayesian accountant the clients handed over norms or distances of their "
            "records' gradients as they are.",
        ),
    ]
