"""`fedsim.account`: what noise guarantees, or the least noise for a limit."""

from pathlib import Path
from typing import Literal

from fedsim.commands.answer import Answer
from fedsim.commands.settings import Change, changed


def account(
    source: Path | None = None,
    /,
    *changes: Change,
    noise_multiplier: float | None = None,
    rounds: int | None = None,
    delta: float | None = None,
    local_steps: int | None = None,
    sampling_rate: float | None = None,
    neighbouring: Literal["add-remove", "replace"] | None = None,
    trust: Literal["central", "local", "distributed"] | None = None,
    clients: int | None = None,
    participants: int | None = None,
    colluding: int | None = None,
    vantage: Literal["server", "participant", "released-model"] | None = None,
    epsilon: float | None = None,
    rho_beta: float | None = None,
    rho_alpha: float | None = None,
    max_risk: float | None = None,
    baseline_risk: float | None = None,
    accountant: str | None = None,
    halfwidth: float | None = None,
) -> Answer:
    """Compute what noise guarantees any one person, or the least noise for a limit.

    With a limit, it computes the number that is left out: the least noise multiplier; or the most
    rounds, if the noise multiplier is set.

    30 rounds with noise of 8.38 times the clipping norm:

    fedsim account --noise-multiplier 8.38 --rounds 30 --delta 0.01

    Rounds that differ, and the releases of a finished run:

    fedsim account rounds.toml --delta 1e-5

    fedsim account fedsim-runs/digits

    The least noise with which an adversary is at most 90 % sure about any person:

    fedsim account --rho-beta 0.9 --delta 0.01 --rounds 30

    An attacker who names one of 1,000 people rightly by chance names at most 5 of 1,000:

    fedsim account --max-risk 0.005 --baseline-risk 0.001 --rounds 30

    Number of trials for an interval of the advantage of ± 0.05:

    fedsim account digits --halfwidth 0.05

    Args:
        source: configuration, run directory, or TOML file with different [[rounds]]. It replaces
            the numbers of the mechanism.
        changes: changes of the configuration's keys, as KEY=VALUE.
        noise_multiplier: standard deviation of the noise, divided by the sensitivity of a sum.
        rounds: number of rounds (k): noisy sums that a client or the server releases.
        delta: probability that the guarantee fails (δ). Default: from the configuration, else 1e-5.
        local_steps: noisy local steps of each client in each round, with local trust. Default: 1.
        sampling_rate: probability that a record joins a step. Default: 1, full batches.
        neighbouring: difference between the two worlds: a missing record (add-remove) or a replaced
            one (replace). Default: add-remove.
        trust: party that adds the noise: the server (central), each client to its own message
            (local), or each client a share of it (distributed). Default: central.
        clients: number of clients (m). Default: 2.
        participants: number of clients in each round. Default: all.
        colluding: number of other clients that disclose their noise, at most m - 2. Default: 0.
        vantage: vantage point of the adversary. Default: participant.
        epsilon: limit on epsilon. Give at most one limit.
        rho_beta: limit on the adversary's belief about one person, 0.5 to 1.
        rho_alpha: limit on the adversary's advantage over guessing, 0 to 1.
        max_risk: largest success of any attack with the release, such as 0.005.
        baseline_risk: success of an attack without the release, such as 0.001 for naming one of
            1,000 people. Default: 0.001.
        accountant: accountant of the limits epsilon and rho-beta: pld, gdp, rdp, rdp-classic,
            advanced or basic.
            Default: pld.
        halfwidth: also state the number of trials for an interval of the advantage with this
            halfwidth.

    Returns:
        The answer; its details are the `AccountedGuarantees`, with the mechanism and its bounds.

    Raises:
        InputError: a value is out of range, the mechanism is described twice or not at all, or no
            mechanism meets the limit.
    """
    from fedsim.common import configurations  # noqa: PLC0415
    from fedsim.studies.guarantees import accounting, words  # noqa: PLC0415  (torch)
    from fedsim.studies.guarantees.by_hand import ByHand, Target  # noqa: PLC0415

    hand = ByHand(
        noise_multiplier,
        rounds,
        sampling_rate,
        local_steps,
        neighbouring,
        trust,
        clients,
        participants,
        colluding,
    )
    found = accounting.account(
        None if source is None else configurations.bundled(Path(source)),
        hand,
        Target(epsilon, rho_beta, rho_alpha, max_risk, baseline_risk, accountant),
        delta=delta,
        vantage=vantage,
        halfwidth=halfwidth,
        changes=changed(changes),
    )
    return Answer(
        report=found.document,
        table=found.document["to_whom"],
        details=found,
        _blocks=lambda: [*words.blocks(found, delta is None and found.config is None)],
    )
