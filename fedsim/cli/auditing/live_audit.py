"""Audits what an auditor's node recorded, after the run or while it goes on."""

import itertools
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console, RenderableType
from rich.live import Live

from adversaries.errors import InputError
from adversaries.statistics.intervals import significance
from fedsim.audits.judgement.verdict import verdict_of
from fedsim.audits.live.live_audit import LiveAudit
from fedsim.audits.live.live_rounds import Belief, Look
from fedsim.cli.auditing.options import OfAuditors, OfEvery
from fedsim.cli.terminal import Terminal, print_json
from fedsim.common import private_files, report_directory
from fedsim.common.strict_json import report_json
from fedsim.config import Config, Scalar, to_run_config
from fedsim.federation.runs import run_transcript
from fedsim.federation.runs.run_directory import RunDirectory
from fedsim.federation.transcripts.reader import Reader, follow, has_ended
from fedsim.federation.transcripts.records import ObservedRound
from fedsim.game.canary import Canaries


def check(every: OfEvery, options: OfAuditors) -> None:
    """Refuse options that no auditor's transcript can be audited with.

    Args:
        every: of which the confidence is checked.
        options: of which the file with the canaries' seed is read.

    Raises:
        InputError: the confidence is impossible, or the canaries' seeds cannot be read.
    """
    significance(every.level)
    if options.canary_seed_file is not None:
        _planted(options.canary_seed_file)


def audit_live(
    path: Path, every: OfEvery, options: OfAuditors, stop: Callable[[], bool] | None = None
) -> int:
    """Work out the beliefs of an auditor, show them as they come, and leave a report.

    Every belief is a line of beliefs.jsonl in the report's directory; of a transcript that is
    followed, with --json, it is one on standard output as well, and the report the last.

    Args:
        path: the transcript.
        every: how it is audited.
        options: what the auditor's node knows besides.
        stop: as of `transcript.follow`, to follow it until then; None for one as it is.

    Returns:
        The exit status.

    Raises:
        InputError: the options do not fit the transcript, or there is none.
    """
    from fedsim.audits.live import live_report  # noqa: PLC0415  (matplotlib is slow to import)
    from fedsim.report.kinds import live as live_words  # noqa: PLC0415  (matplotlib is slow to import)

    check(every, options)  # what is wrong with them shows before the run, not after
    run = None if options.worlds is None else RunDirectory.open(options.worlds)
    worlds = None if run is None else run_transcript.read(run)["worlds"]
    audit, directory = _audit(options, every.level), every.directory(path)
    streaming = every.as_json and stop is not None
    console = Terminal(stderr=True)
    report_directory.check(directory)
    rounds = _rounds(path, stop)
    for observed in itertools.islice(rounds, 1):
        _begin(audit, observed, run, options)
    report_directory.create(directory)
    with report_directory.refusing(directory):
        with private_files.opened_new(directory / "beliefs.jsonl") as file, view(console) as show:
            seen: list[Belief | Look] = []
            for belief in map(audit.observe, rounds):
                if belief is None:
                    continue
                line = json.dumps(report_json(belief.as_json()), allow_nan=False)
                file.write(f"{line}\n".encode())
                file.flush()
                if streaming:
                    print(line, flush=True)
                seen.append(belief)
                show(live_words.table(seen))
        with Reader(path) as reader:
            report = live_report.assemble(
                audit, reader.facts, every.level, worlds, every.claim, has_ended(path)
            )
        page = live_words.write(report, directory, audit.looks)
    if streaming:
        print(json.dumps(report_json(report), allow_nan=False), flush=True)
    elif every.as_json:
        print_json(report_json(report))
    console.print(live_words.summary(report))
    console.print(f"Report: {page}", soft_wrap=True, highlight=False)
    return every.exit_status(verdict_of(report), report_json(report))


def _begin(
    audit: LiveAudit, observed: ObservedRound, run: RunDirectory | None, options: OfAuditors
) -> None:
    """Take in the first message. Raises InputError.

    No sum comes with it, but the configuration: of another run, or of one that cannot be audited,
    nothing is left behind.
    """
    audit.observe(observed)
    assert audit.config is not None
    if run is not None:
        _check_same(run, audit.config)
    if options.no_challenge and audit.canaries is None and audit.noise is None:
        raise InputError(
            "--no-challenge leaves nothing to audit in a run of several trials but canaries; "
            "give their seeds with --canary-seed-file, or leave --no-challenge out"
        )


def _audit(options: OfAuditors, confidence: float) -> LiveAudit:
    """Return an audit with what the auditor's node knows. Raises InputError."""
    seeds = options.canary_seed_file
    root = "" if options.data_root is None else str(options.data_root.expanduser().absolute())
    planted = [] if seeds is None else _planted(seeds)
    challenge = not options.no_challenge
    return LiveAudit(root, planted=planted, challenge=challenge, confidence=confidence)


def _rounds(path: Path, stop: Callable[[], bool] | None) -> Iterator[ObservedRound]:
    if stop is not None:
        yield from follow(path, stop=stop)
        return
    with Reader(path) as reader:
        yield from reader.rounds()


@contextmanager
def view(console: Console) -> Iterator[Callable[[RenderableType], None]]:
    """Yield what shows a table in place of the one before, or nothing where there is no terminal.

    Args:
        console: that the table is gone from when the block ends.
    """
    if not console.is_terminal:
        yield lambda _: None
        return
    with Live(console=console, transient=True, refresh_per_second=4) as live:
        yield live.update


def _check_same(run: RunDirectory, recorded: Config) -> None:
    """Raise InputError unless a run directory is of the run that the auditor recorded."""

    def experiment(config: Config) -> dict[str, Scalar]:
        keys = to_run_config(config).items()
        # Where and on what it ran does not change the worlds.
        return {
            key: value
            for key, value in keys
            if key not in ("data.root", "data.download", "trials.batch")
            and (key == "run.seed" or not key.startswith("run."))
        }

    there, here = experiment(run.config), experiment(recorded)
    differing = sorted(key for key in here if there[key] != here[key])
    if differing:
        key = differing[0]
        raise InputError(
            f"'{run.path}' is not the run that was recorded: its {key} is {there[key]!r}, the "
            f"recorded one {here[key]!r}; name the directory of that run with --worlds"
        )


def _planted(path: Path) -> list[Canaries]:
    """Read the canaries of consenting clients. Raises InputError for a file that has none."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
        found = [Canaries(*map(int, line.split())) for line in lines if line.strip()]
        if not found or any(each.count < 1 for each in found):
            raise ValueError("it names no canaries")
    except (OSError, ValueError, TypeError) as error:
        raise InputError(
            f"cannot read seeds from '{path}': {error}; the file has a line for each client that "
            "plants canaries, with the canary-seed and canary-count of its node.toml: 1234 100"
        ) from None
    return found
