"""`fedsim account`: the guarantees of a given amount of noise, by every accountant."""

import math
import os
from pathlib import Path

from rich.console import Console
from rich.text import Text

from adversaries.errors import InputError
from fedsim.cli.options import AsJson
from fedsim.cli.terminal import Terminal, print_json
from fedsim.cli.theory import guarantees, options
from fedsim.privacy import identifiability
from fedsim.studies.guarantees import accounting
from fedsim.studies.guarantees.accounting import BELIEFS, AccountedGuarantees, unbounded
from fedsim.studies.guarantees.statements import Row


def account(
    *,
    source: options.Source = None,
    mechanism: options.GivenMechanism,
    plot: options.Plot = None,
    json_: AsJson = False,
) -> None:
    """Compute what a given amount of noise guarantees any one person, by every accountant.

    Example, 30 rounds with noise of 8.38 times the clipping norm:

    fedsim account --noise-multiplier 8.38 --rounds 30 --delta 0.01

    Rounds that differ, and the releases of a finished run:

    fedsim account rounds.toml --delta 1e-5

    fedsim account fedsim-runs/digits
    """
    if plot is not None:
        _check_plot(plot)
    guarantee = accounting.account(source, **vars(mechanism))
    document = dict(guarantee.document)
    if plot is not None:
        with Terminal(stderr=True).status("accounting round by round"):
            document["by_round"] = _plot(guarantee, plot)
    if json_:
        print_json(document)
    else:
        console = Terminal(highlight=False)
        _print(guarantee, console, mechanism.delta is None and guarantee.config is None)
        if plot is not None:
            console.print(f"Figure: {plot}", soft_wrap=True)


def _print(guarantee: AccountedGuarantees, console: Console, assumed: bool) -> None:
    releases, vantage, bounds = guarantee.releases, guarantee.vantage, guarantee.bounds
    document, config = guarantee.document, guarantee.config
    reason = None if config is None else unbounded(config.training.clipping)
    guarantees.print_description(releases, vantage, console)
    if config is not None:
        label = "A DP guarantee" if document["dp_guarantee"] else "No DP guarantee"
        console.print(Text(f"{label}. {document['dp_note']}"))
    if reason is not None:
        console.print(Text(f"No bound on the belief: {reason} for every trust and vantage."))
        guarantees.print_bayesian(document["bayesian"], console)
        return
    by_client = config is not None and config.privacy.unit == "client"
    unit = guarantees.CLIENT if by_client else guarantees.PERSON
    console.print(guarantees.verdict(bounds, document["tail_limit"], unit))
    console.print(guarantees.NOISE_MULTIPLIER_EXPLAINED.format(unit=unit))
    if not releases.towards(vantage).noiseless:
        columns = {"epsilon": "epsilon", "rho_beta": "rho_beta", "tail_limit": "exceeded with"}
        guarantees.print_accountants(
            f"Bounds{guarantees.assumed(bounds.delta, assumed) or f' at delta {bounds.delta:g}'}",
            document["accountants"],
            columns,
            console,
        )
        console.print(
            f"The bound on the advantage is rho_alpha = {guarantees.advantage(bounds.rho_alpha)}. "
            "Theorem 2 of Bernau et al. gives "
            f"{guarantees.advantage(bounds.theorem2_rho_alpha)}, which may be exceeded. Membership "
            f"inference: at most {guarantees.cell(bounds.yeom_bound)} (Yeom's bound e^epsilon - 1, "
            "for pure epsilon)."
        )
        guarantees.print_risks(document["risks"], console)
        guarantees.print_pac(document["pac"], console)
    guarantees.print_bayesian(document["bayesian"], console)
    guarantees.print_to_whom(document["to_whom"], console)


def _check_plot(plot: Path) -> None:
    if plot.suffix not in (".svg", ".png"):
        raise InputError(
            f"--plot: '{plot}' is neither .svg nor .png; name a file with one of these endings"
        )
    if not plot.absolute().parent.is_dir():
        raise InputError(f"'{plot.parent}' is not a directory; create it, or name another file")
    # Only opening a file shows for certain that it can be written. Appending keeps its content.
    existed = os.path.lexists(plot)
    try:
        plot.open("ab").close()
        if not existed:
            plot.unlink()
    except IsADirectoryError:
        raise InputError(f"'{plot}' is a directory; name a file in it") from None
    except OSError as error:
        raise InputError(f"cannot write '{plot}': {error.strerror}; name another file") from None


def _plot(guarantee: AccountedGuarantees, path: Path) -> Row:
    """Draw the figure; return epsilon by round, for JSON. Raises InputError."""
    releases, vantage, delta = guarantee.releases, guarantee.vantage, guarantee.bounds.delta
    document = guarantee.document
    if math.isinf(document["epsilon"]):
        raise InputError(f"--plot: epsilon is infinite ({document['note']}); leave --plot out")
    from fedsim.report.figures import canvas, run_figures  # noqa: PLC0415

    names = [name for name, row in document["accountants"].items() if "refusal" not in row]
    rounds, epsilons = identifiability.epsilon_by_round(releases, vantage, delta, names)
    if document["belief_curve"] is None:
        curve = None
    else:
        curve = identifiability.belief_curve(releases.towards(vantage), BELIEFS)
    figure = run_figures.guarantee(rounds, epsilons, delta, curve, document["rho_beta"])
    drawn = canvas.to_png(figure) if path.suffix == ".png" else canvas.to_svg(figure).encode()
    try:
        path.write_bytes(drawn)
    except OSError as error:
        raise InputError(f"cannot write '{path}': {error.strerror}; name another file") from None
    return {
        "rounds": rounds.tolist(),
        "epsilon": {name: values.tolist() for name, values in epsilons.items()},
    }
