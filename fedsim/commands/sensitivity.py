"""`fedsim.sensitivity`: the pair of neighbouring data sets to audit."""

from pathlib import Path

from fedsim.commands.answer import Answer, of_study
from fedsim.commands.settings import (
    Arrays,
    Change,
    Given,
    Network,
    Progress,
    changed,
    configured,
    console,
)
from fedsim.common import report_directory


def sensitivity(
    config: Given,
    /,
    *changes: Change,
    top: int = 3,
    trials: int = 20,
    model: Network = None,
    data: Arrays = None,
    out: Path | None = None,
    progress: Progress = None,
) -> Answer:
    """Find the pair of neighbouring data sets to audit, and its distance from the worst case.

    Ranks records (add-remove) or pairs of a record and its replacement (replace) by dissimilarity,
    which needs no gradients. Then compares the choice with the truth: the local sensitivity of
    every pair at the first model, and of the chosen pairs during training. Writes report.html, with
    the records themselves, and report.json. All results are measured on the private data; none of
    them is a DP release.

    Examples: fedsim sensitivity digits challenge.dissimilarity=cosine privacy.neighbouring=replace

    fedsim sensitivity mnist data.root=DIR --top 5 --trials 250

    Args:
        config: experiment file (TOML), or bundled name. In Python also a configuration, or dotted
            keys over the defaults.
        changes: changes of configuration keys, as KEY=VALUE. In Python also mappings.
        top: number of pairs to show from each end of the ranking.
        trials: number of trials that measure local sensitivity.
        model: class of a network, or a function that builds one, as for `run`.
        data: (features, labels), as for `run`.
        out: directory of the report. Default: fedsim-runs/NAME-sensitivity-TIME; in Python: none.
        progress: whether to show a bar; None: only in a terminal or a notebook.

    Returns:
        The answer; its details are the study.

    Raises:
        InputError: the configuration has no such choice, or the directory has other files.
    """
    from fedsim.federation.server import plan  # noqa: PLC0415
    from fedsim.reports.tracking.progress import measuring  # noqa: PLC0415
    from fedsim.studies.sensitivity import sensitivity_report as told  # noqa: PLC0415
    from fedsim.studies.sensitivity import sensitivity_study  # noqa: PLC0415

    chosen = configured(config, changed(changes, {"model.name": model, "data.name": data}))
    place = report_directory.timed(f"{chosen.run.name}-sensitivity") if out is None else Path(out)
    report_directory.check_new(place)
    sensitivity_study.check_study(chosen, top, trials)
    batch = plan.fit_batch(chosen).trials.batch
    with measuring(console(progress), "local sensitivity") as bar:
        study = sensitivity_study.study(chosen, batch, top, trials, bar)
    answer = of_study(told.told(study), place=place, details=study)
    return answer if out is None else answer.save(place)
