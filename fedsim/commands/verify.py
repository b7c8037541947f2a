"""`fedsim.verify`: whether a result is unchanged and its report follows from its files."""

from pathlib import Path

from fedsim.commands.answer import Answer

WORDS = {
    0: ("verified", "bold green"),
    3: ("cannot tell", "bold yellow"),
    4: ("refuted", "bold red"),
}


def verify(run: Path, /) -> Answer:
    """Compare a result with its SHA256SUMS, and its report and pages with those made again.

    Writes SHA256SUMS where there is none: the result is then sealed. Sign that file, for example
    with ssh-keygen. Exit status: 0 sealed or verified; 3 cannot tell, as for the audit of an app or
    loop, whose report cannot be made again; 4 refuted; 2 bad input.

    Example: fedsim verify fedsim-runs/digits

    Args:
        run: directory of a finished run or audit.

    Returns:
        The answer; its details are the `Verification`.

    Raises:
        InputError: the directory is no finished result, a file cannot be read, or the facts of a
            run contradict it.
    """
    from rich.console import Group  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    from fedsim.reports.kinds import verification  # noqa: PLC0415  (torch is slow)

    found = verification.verify(Path(run))
    word, style = WORDS[found.outcome]
    if found.sealed and not found.outcome:
        word = "sealed"  # what no file allows to make again, such as a model, is believed
    checks = [
        {"of": check.of, "outcome": WORDS[check.outcome][0], "why": check.words}
        for check in found.checks
    ]

    def listed() -> Group:
        lines = [Text(word.upper(), style)]
        for check in found.checks:
            name, colour = WORDS[check.outcome]
            line = Text.assemble((f"{name:<13}", colour), f"{check.of}: {check.words}")
            line.no_wrap, line.overflow = True, "ignore"
            lines.append(line)
        return Group(*lines)

    return Answer(
        report={"outcome": word, "checks": checks},
        table=checks,
        status=int(found.outcome),
        path=Path(run),
        details=found,
        _terminal=listed,
    )
