"""`fedsim.attack`: who was in the training data, or what a record says."""

import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from adversaries.errors import InputError
from fedsim.commands.answer import CONTRADICTED, Answer, of_study
from fedsim.commands.settings import (
    Arrays,
    Attacks,
    Change,
    Given,
    Network,
    Progress,
    changed,
    configured,
    console,
)
from fedsim.common import report_directory

if TYPE_CHECKING:  # torch
    from fedsim.configuration import Config

RECORDS = 100
"""Candidates of a reconstruction, unless another number is given."""


def attack(
    config: Given,
    /,
    *changes: Change,
    models: int | None = None,
    candidates: int | None = None,
    column: str | None = None,
    prior: Literal["uniform", "data"] = "uniform",
    attacks: Attacks = None,
    model: Network = None,
    data: Arrays = None,
    out: Path | None = None,
    progress: Progress = None,
) -> Answer:
    """Run membership inference or reconstruction attacks on a federation.

    Membership: trains many models at once with the configured DP-SGD, each on a random half of D.
    Half of them are shadow models. Attacks every record at each of the other models, from losses
    alone: Yeom's rule, LiRA, RMIA and the population attack, or those of audit.attacks.

    Reconstruction, with --candidates or --column: in each of trials.count trials one of the
    candidates, drawn at random, is in the training data. The adversary is a participant, and
    computes the exact posterior over all candidates from the released sums.

    Writes report.json and report.html, with the limits that the noise sets to any attack. Exit
    status 4: a measurement contradicts theory.

    Examples: fedsim attack digits --models 256 audit.attacks=lira,rmia

    fedsim attack digits --candidates 100 trials.count=1000

    fedsim attack digits --column label

    Args:
        config: experiment file (TOML), or bundled name. In Python also a configuration, or dotted
            keys over the defaults.
        changes: changes of configuration keys, as KEY=VALUE. In Python also mappings.
        models: number of models to train for membership inference, half of them shadow models.
            Default: 128.
        candidates: guess which of this many records was used, at most 1000.
        column: guess the target's value in this column instead: a column of a table, or label.
        prior: prior probabilities of the column's values: all equal, or their shares outside D.
        attacks: functions (targets, shadows or None) -> scores [N, n], `Attack`s of
            `adversaries.attacks.membership_attacks` or their names, in place of audit.attacks.
        model: class of a network, or a function that builds one, as for `run`.
        data: (features, labels), as for `run`.
        out: directory of the report. Default: fedsim-runs/NAME-ATTACK-TIME; in Python: none.
        progress: whether to show a bar; None: only in a terminal or a notebook.

    Returns:
        The answer; its details are a `MembershipReport` or a `ReconstructionReport`.

    Raises:
        InputError: options exclude each other, or the configuration cannot be played.
    """
    own = {"model.name": model, "data.name": data, "audit.attacks": attacks}
    chosen = configured(config, changed(changes, own))
    kind = "membership" if candidates is None and column is None else "reconstruction"
    place = report_directory.timed(f"{chosen.run.name}-{kind}") if out is None else Path(out)
    report_directory.check_new(place)
    if kind == "membership":
        if prior != "uniform":
            raise InputError("--prior is of a column's values; add --column NAME, or leave it out")
        answer = _membership(chosen, 128 if models is None else models, progress)
    else:
        if models is not None or attacks is not None:
            raise InputError(
                "--models and attacks are of membership inference; leave them out, or leave out "
                "--candidates and --column"
            )
        answer = _reconstruction(chosen, candidates, column, prior, progress)
    return replace(answer, place=place) if out is None else answer.save(out)


def _membership(chosen: "Config", models: int, progress: Progress) -> Answer:
    from adversaries.attacks import membership_attacks  # noqa: PLC0415
    from fedsim.reports.tracking.progress import measuring  # noqa: PLC0415
    from fedsim.studies.membership import membership_game  # noqa: PLC0415
    from fedsim.studies.membership import membership_report as told  # noqa: PLC0415

    attacks = membership_attacks.chosen(chosen.audit.attacks)
    if not attacks:
        raise InputError('audit.attacks is "none"; name one or more attacks, or "all"')
    others = min(membership_game.POPULATION, chosen.data.held_out)
    membership_attacks.rehearse(attacks.values(), models, chosen.data.records, others)
    start = time.perf_counter()
    with measuring(console(progress), "training") as bar:
        game = membership_game.play(chosen, models, bar)
    seconds = time.perf_counter() - start
    report = told.assemble(chosen, chosen.audit.confidence, game, attacks, seconds)
    status = CONTRADICTED if report.alarms else 0
    return of_study(told.told(report), status=status, details=report)


def _reconstruction(
    chosen: "Config",
    candidates: int | None,
    column: str | None,
    prior: Literal["uniform", "data"],
    progress: Progress,
) -> Answer:
    from fedsim.federation.server import plan  # noqa: PLC0415
    from fedsim.game import challenge, federation  # noqa: PLC0415
    from fedsim.game.mechanisms import privacy  # noqa: PLC0415
    from fedsim.reports.tracking.progress import measuring  # noqa: PLC0415
    from fedsim.studies import rounds  # noqa: PLC0415
    from fedsim.studies.reconstruction import candidate_game, candidate_report  # noqa: PLC0415

    if column is not None and candidates is not None:
        raise InputError(
            "--candidates and --column are both given; give a number of records, or a column whose "
            "values are the candidates"
        )
    if column is None and prior != "uniform":
        raise InputError(
            f"--prior is {prior}, but candidates that are records are all equally likely; give a "
            "--column, or leave the prior out"
        )
    start = time.perf_counter()
    rounds.refuse_unplayed(chosen, rounds.RECONSTRUCT)
    loaded, record = federation.load(chosen), challenge.choose(chosen).record
    assert record is not None  # the target is a record
    if column is None:
        count = RECORDS if candidates is None else candidates
        these = candidate_game.of_records(loaded, record, count, chosen.run.seed)
    else:
        these = candidate_game.of_column(loaded, record, column, prior)
    nominal = privacy.noise_multiplier(chosen)
    batch, trials = plan.fit_batch(chosen).trials.batch, chosen.trials.count
    with measuring(console(progress), "training") as bar:
        played = candidate_game.play(chosen, loaded, record, these, nominal, trials, batch, bar)
    report = candidate_report.ReconstructionReport(
        chosen,
        column,
        prior,
        nominal,
        candidate_game.mechanism(chosen, nominal),
        these,
        played,
        time.perf_counter() - start,
    )
    status = CONTRADICTED if report.contradictions else 0
    return of_study(candidate_report.told(report), status=status, details=report)
