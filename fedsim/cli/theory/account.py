"""`fedsim account`: what noise guarantees, by every accountant, or the least noise for a limit."""

from rich.console import Console
from rich.text import Text

from fedsim.cli.options import AsJson
from fedsim.cli.terminal import Terminal, print_json
from fedsim.cli.theory import guarantees, options
from fedsim.studies.guarantees import accounting
from fedsim.studies.guarantees.accounting import AccountedGuarantees, unbounded

SOLUTIONS = {"rounds": "Most rounds:", "sampling_rate": "Highest sampling rate:"}
BOUNDS = {"epsilon": "epsilon", "rho_beta": "rho_beta"}
SOLVED = {"effective_noise_multiplier": "effective noise", "rho_alpha": "rho_alpha"}


def account(
    *,
    source: options.Source = None,
    mechanism: options.Mechanism,
    target: options.Target,
    halfwidth: options.Halfwidth = None,
    json_: AsJson = False,
) -> None:
    """Compute what noise guarantees any one person, or the least noise for a limit.

    Example, 30 rounds with noise of 8.38 times the clipping norm:

    fedsim account --noise-multiplier 8.38 --rounds 30 --delta 0.01

    Rounds that differ, and the releases of a finished run:

    fedsim account rounds.toml --delta 1e-5

    fedsim account fedsim-runs/digits

    The least noise with which an adversary is at most 90 % sure about any person:

    fedsim account --rho-beta 0.9 --delta 0.01 --rounds 30

    An attacker who names one of 1,000 people rightly by chance names at most 5 of 1,000:

    fedsim account --max-risk 0.005 --baseline-risk 0.001 --rounds 30

    How many rounds does this noise allow?

    fedsim account --rho-beta 0.9 --delta 0.01 --noise-multiplier 4

    How many trials does an interval of the advantage of ± 0.05 need?

    fedsim account configs/digits.toml --halfwidth 0.05
    """
    found = accounting.account(source, **vars(mechanism), **vars(target), halfwidth=halfwidth)
    if json_:
        print_json(found.document)
        return
    console = Terminal(highlight=False)
    title = f" at delta {found.bounds.delta:g}"
    if mechanism.delta is None and found.config is None:
        title += ", because no --delta was given"
    if found.found is None:
        _print_guarantee(found, console, title)
    else:
        _print_solution(found, console, title)
    if halfwidth is not None:
        guarantees.print_precision(found.document["precision"], console)


def _print_solution(found: AccountedGuarantees, console: Console, title: str) -> None:
    """Print the number for a limit, its guarantees, and the numbers of every accountant."""
    document, unknown = found.document, found.found
    assert unknown is not None
    if unknown != "noise_multiplier":
        full = unknown == "sampling_rate" and found.value == 1
        end = "; full batches already meet the limit." if full else "."
        value = (f"{found.value:.6g}", "bold")
        console.print(Text.assemble(f"{SOLUTIONS[unknown]} ", value, end))
    guarantees.print_description(found.releases, found.vantage, console)
    console.print(guarantees.verdict(found.bounds, document["tail_limit"]))
    console.print(guarantees.NOISE_MULTIPLIER_EXPLAINED.format(unit=guarantees.PERSON))
    if rows := document["solutions"]:
        columns = {unknown: unknown.replace("_", " "), **SOLVED}
        guarantees.print_accountants(
            f"The same limit by every accountant{title}", rows, columns, console
        )
    else:
        guarantees.print_accountants(f"Bounds{title}", document["accountants"], BOUNDS, console)
    guarantees.print_risks(document["risks"], console)


def _print_guarantee(found: AccountedGuarantees, console: Console, title: str) -> None:
    releases, vantage, bounds = found.releases, found.vantage, found.bounds
    document, config = found.document, found.config
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
        columns = {**BOUNDS, "tail_limit": "exceeded with"}
        guarantees.print_accountants(f"Bounds{title}", document["accountants"], columns, console)
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
