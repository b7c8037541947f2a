"""A small result of every kind, as the commands that make it.

The corpus knows fedsim by its commands and its files, so that it outlives a change of the inside;
two names of the inside stand in `fedsim` and `play`, and the others in `golden/inputs.py`. Tests
play each kind once a session; `tests/golden` holds its numbers.

    python tests/corpus.py play DIR [KIND ...]    play kinds, each into a folder of DIR
    python tests/corpus.py compare DIR DIR        where the values of two such folders differ
    python tests/corpus.py pages DIR              a page of every sort, to be looked at

`PYTHONPATH=TREE python tests/corpus.py play DIR` plays the same commands with another tree.
"""

import io
import json
import sys
from collections.abc import Iterator
from contextlib import chdir, nullcontext, redirect_stderr, redirect_stdout
from dataclasses import asdict, dataclass, field
from importlib import import_module
from pathlib import Path
from unittest.mock import patch

import numpy as np

TESTS = Path(__file__).parent
TREE = TESTS.parent
ENDED = "ended.json"
sys.path.insert(0, str(TESTS / "golden"))

from leaves import of_directory, of_text  # noqa: E402

SMALL = {"training.rounds": 3, "run.threads": 1, "run.device": "cpu"}
GAME = SMALL | {"trials.count": 8, "trials.batch": 4, "audit.evaluated-trials": 4}
SEEDED = {"privacy.noise-source": "seed"}
DIGITS = {"data.name": "digits", "data.pool": 0, "model.name": "linear", "data.records": 100}
"""In place of data that are read from files: the other settings of the configuration remain."""

TINY = GAME | {
    "data.records": 24,
    "data.held-out": 20,
    "data.pool": 30,
    "federation.clients": 3,
    "model.name": "linear",
}
LOCAL = {"federation.trust": "local"} | SEEDED

CONFIGURATIONS: dict[str, dict[str, object]] = {
    "adult": DIGITS | {"challenge.dissimilarity": "manhattan"},
    "cifar-10": DIGITS,
    "client-level": {},
    "clipbkd": {},
    "cross-device": {},
    "deployment": SEEDED | {"trials.count": 1, "trials.batch": 1},
    "digits": {},
    "distributed": {},
    "mnist": DIGITS,
    "one-run": {"trials.count": 2, "trials.batch": 2, "canaries.count": 100},
    "opacus-clients": {"training.local-steps": 3},
    "purchase-100": DIGITS | {"challenge.dissimilarity": "euclidean"},
    "sampled": {},
    "vantages": {"trials.count": 40, "trials.batch": 20},
}
"""The files of configs/ that `fedsim run` takes, with what makes each small."""

GAMES: dict[str, dict[str, object]] = {
    "budget": {"privacy.stop-at": 1.5, "privacy.delta": 0.005},
    "gradient-canary": {"challenge.kind": "gradient"},
    "local-dp-sgd": LOCAL
    | {"training.local-steps": 3, "training.sampling-rate": 0.2}
    | {"privacy.neighbouring": "add-remove"},
    "local-sensitivity": {"privacy.sensitivity": "local"},
    "oracle": {"audit.mode": "oracle"},
    "released-model": {"federation.vantage": "released-model"},
    "replace": {"privacy.neighbouring": "replace"},
    "sampled-server": {"training.sampling-rate": 0.02, "audit.vantages": "all"}
    | {"privacy.neighbouring": "add-remove"},
    "unclipped": {"training.clipping": False, "privacy.rho-beta": 0.0}
    | {"privacy.noise-multiplier": 1.0},
}
"""Games on a few digits: what each changes of a tiny one."""


@dataclass(frozen=True)
class Kind:
    """A kind of result.

    Attributes:
        name: of the kind.
        commands: words of `fedsim`, run one after the other in the same folder.
        files: function that writes what the commands read, as MODULE.NAME; "" if there is none.
        seeded: whether all of its noise comes from a seed, so that its trained numbers repeat.
        resumes: the folder of a result that `fedsim resume` continues; "" if there is none.
    """

    name: str
    commands: tuple[tuple[str, ...], ...]
    files: str = ""
    resumes: str = ""
    seeded: bool = True


@dataclass(frozen=True)
class Ended:
    """How a command ended: its exit status and what it wrote to the two outputs."""

    status: int
    output: str
    errors: str


@dataclass(frozen=True)
class Played:
    """A kind that has been played: the folder, and how each command ended."""

    kind: Kind
    folder: Path
    ended: tuple[Ended, ...] = field(repr=False)


def options(values: dict[str, object]) -> tuple[str, ...]:
    """Return the words that set keys of the configuration."""
    texts = {
        key: str(value).lower() if isinstance(value, bool) else value
        for key, value in values.items()
    }
    return tuple(f"{key}={value}" for key, value in texts.items())


def configuration(name: str) -> str:
    """Return the path of a file of configs/."""
    return str(TREE / "configs" / f"{name}.toml")


def _kinds() -> Iterator[Kind]:
    for name, changes in CONFIGURATIONS.items():
        command = ("run", configuration(name), "--quiet", *options(GAME | changes), "--out", "run")
        yield Kind(name, (command,), resumes="run")
    digits, tiny = configuration("digits"), options(TINY)
    for name, changes in GAMES.items():
        command = ("run", digits, "--quiet", *options(TINY | changes), "--out", "run")
        yield Kind(name, (command,), resumes="run")
    train = ("train", configuration("train-digits"), "--quiet", *options(SMALL | SEEDED))
    yield Kind("train-digits", ((*train, "--out", "run"), ("report", "run")), resumes="run")
    yield from _tables()
    yield from _audits()
    game = {key: value for key, value in TINY.items() if key != "trials.count"}
    reconstruct = ("attack", digits, *options(game), "trials.count=8")
    membership = ("attack", digits, *tiny, "--models", "48", "--out", "membership")
    yield Kind("membership", (membership,))
    yield Kind(
        "reconstruct",
        (
            (*reconstruct, "--candidates", "6", "--out", "records"),
            (*reconstruct, "--column", "label", "--out", "labels"),
        ),
    )
    own = ("rho-beta=0.6", "rho-beta=0.9")
    stated = [(f"privacy.{each}", "--out", f"sweep/{each}") for each in own]
    each = [("run", digits, "--quiet", *tiny, *last) for last in stated]
    both = ("report", *(f"sweep/{each}" for each in own), "--json")
    yield Kind("compare", (*each, both))
    more = {"data.records": 300, "data.held-out": 200, "training.rounds": 10}
    choose = ("choose", digits, *options(TINY | more), "--max-belief", "0.99", "--out", "chosen")
    yield Kind("choose", (choose,))
    pairs = ("sensitivity", digits, *tiny, "--trials", "4", "--top", "2", "--out", "pairs")
    yield Kind("sensitivity", (pairs,))
    yield Kind("data", (("data", digits, *tiny, "--json"),))
    rehearse = ("run", configuration("train-digits"), "run.job=rehearsal", "--quiet")
    rehearse += ("trials.count=8",)
    rehearse += options(SMALL | {"model.name": "linear", "data.records": 100})
    yield Kind("rehearse", ((*rehearse, "--out", "rehearsal"),))
    yield Kind("theory", tuple(_theory(digits)))
    yield Kind("scores", (("audit", "scores.csv", "--json"),), files="inputs.scores")
    run = ("run", digits, "--quiet", *tiny)
    yield Kind(
        "gate",
        (
            (*run, "--fail-if", "advantage.low > -1", "--out", "shut"),
            ("report", "shut", "--fail-if", "epsilon > 99", "--json"),
            (*run, *options({"training.rounds": 0}), "--out", "refused"),
        ),
    )


def _theory(digits: str) -> Iterator[tuple[str, ...]]:
    yield ("account", "--rho-beta", "0.9", "--rounds", "30", "--delta", "1e-3", "--json")
    sampled = ("--sampling-rate", "0.01", "--rounds", "1000", "--delta", "1e-5")
    yield ("account", "--epsilon", "2", *sampled, "--json")
    yield ("account", digits, "--json")
    yield ("account", "--noise-multiplier", "1.1", *sampled, "--json")
    yield ("account", digits, "--halfwidth", "0.1", "--json")
    yield ("pac", "mean", "--data", "digits", "--json")


def _tables() -> Iterator[Kind]:
    """Trainings on a table of one's own, as they begin: with `fedsim init`."""
    init = ("init", "table.toml", "--data", "table.csv", "--label", "sick")
    train = ("train", "table.toml", "--quiet", *options(SMALL | SEEDED), "--out", "run")
    predict = ("predict", "run", "table.csv", "--out", "predicted.csv")
    yield Kind("train-table", (init, train, predict), files="inputs.table")
    deployed = ("deploy", "report", "machine")
    yield Kind("client-report", (deployed,), files="inputs.deployment", seeded=False)


def _audits() -> Iterator[Kind]:
    claim = ("--claimed-delta", "1e-5", "--claimed-epsilon")
    app = ("audit", str(TESTS / "apps" / "dp_app"), "--trials", "20", "--clients", "2")
    app += ("--rounds", "2", "clients=2", "--claimed-unit", "client")
    app += (*claim, "1.4")
    yield Kind("app-audit", ((*app, "--out", "audit"),))
    yield Kind("app-audit-broken", ((*app, "variant=weighted", "--out", "audit"),))
    loops, trials = TESTS / "apps" / "loops", ("--trials", "40", *claim, "2", "--out", "audit")
    yield Kind("loop-audit", (("audit", f"{loops}/opacus_loops.py:correct", *trials),))
    broken = ("audit", f"{loops}/own_loops.py:no_clipping", "--trials", "40", *claim)
    broken += ("1", "--out", "audit")
    yield Kind("loop-audit-broken", (broken,))
    server = ("audit", "server.fedt")
    of_client = ("--claimed-unit", "client", *claim)
    yield Kind(
        "transcript-audit",
        (
            (*server, *of_client, "20", "--out", "claimed"),
            (*server, *of_client, "0.1", "--out", "refuted"),
            (*server, "--out", "unclaimed"),
        ),
        files="inputs.server",
    )
    loop = ("audit", "loop.fedt", *claim, "99", "--out", "claimed")
    yield Kind("transcript-audit-loop", (loop,), files="inputs.loop")
    live = ("audit", "transcripts", *claim)
    yield Kind(
        "live-audit",
        (
            (*live, "2", "--out", "exceeded"),
            (*live, "99", "--out", "claimed"),
            (*live, "99", "--claimed-unit", "client", "--out", "other-unit"),
            ("audit", "transcripts", "--out", "unclaimed"),
        ),
        files="inputs.live",
    )


KINDS = {each.name: each for each in _kinds()}


PAGES = {
    "run": ("vantages", "run"),
    "one-run": ("one-run", "run"),
    "choice": ("choose", "chosen"),
    "training": ("train-digits", "run"),
    "client-report": ("client-report", "machine/report"),
    "app-audit": ("app-audit-broken", "audit"),
    "transcript-audit": ("transcript-audit", "claimed"),
    "live-audit": ("live-audit", "claimed"),
    "membership": ("membership", "membership"),
    "reconstruction": ("reconstruct", "records"),
    "sensitivity": ("sensitivity", "pairs"),
}
"""A page of every sort: the kind that has it, and the folder of its report.html."""


def pages(folder: Path) -> dict[str, Path]:
    """Return a page of every sort with its figures, made in a folder."""
    for name in {kind for kind, _ in PAGES.values()}:
        play(KINDS[name], folder / name, figures=True)
    return {sort: folder / kind / at / "report.html" for sort, (kind, at) in PAGES.items()}


def fedsim(words: tuple[str, ...], folder: Path) -> Ended:
    """Run a command in a folder, in this process."""
    from fedsim.commands.main import main  # noqa: PLC0415  (a device is made known before)

    output, errors = io.StringIO(), io.StringIO()
    status: object = 0
    with chdir(folder), redirect_stdout(output), redirect_stderr(errors):
        try:
            main(list(words))
        except SystemExit as ended:
            status = ended.code
    return Ended(int(str(status or 0)), output.getvalue(), errors.getvalue())


def play(kind: Kind, folder: Path, figures: bool = False) -> Played:
    """Run the commands of a kind in a folder, which is made; figures of runs only where asked."""
    folder.mkdir(parents=True)
    drawn = {} if figures else {"drawn": {}}
    with patch.multiple("fedsim.reports.page.Pictures", **drawn) if drawn else nullcontext():
        with chdir(folder):
            if kind.files:
                module, _, name = kind.files.partition(".")
                getattr(import_module(module), name)()
        ended = tuple(fedsim(each, folder) for each in kind.commands)
    (folder / ENDED).write_text(json.dumps([asdict(each) for each in ended]), encoding="utf-8")
    return Played(kind, folder, ended)


def opened(kind: Kind, folder: Path) -> Played:
    """Return what was played into a folder before."""
    ended = json.loads((folder / ENDED).read_text(encoding="utf-8"))
    return Played(kind, folder, tuple(Ended(**each) for each in ended))


def values(played: Played) -> dict[str, object]:
    """Return every value of a result: of its files, of what it printed as JSON, and statuses."""
    words = {str(played.folder): "DIR", str(TREE): "TREE"}
    found: dict[str, object] = {}
    commands = played.kind.commands
    for number, (command, ended) in enumerate(zip(commands, played.ended, strict=True), 1):
        found[f"{number}: status"] = ended.status
        if "--json" in command and ended.status in (0, 3, 4):
            found |= {f"{number}: {key}": v for key, v in of_text(ended.output, words).items()}
    kept = of_directory(played.folder, words)
    return found | {key: kept[key] for key in kept if not key.startswith(f"{ENDED}:")}


def _main(words: list[str]) -> int:
    """Play kinds, or compare two folders of them; the exit status is 1 where values differ."""
    if words[:1] == ["play"] and words[1:]:
        for name in words[2:] or KINDS:
            played = play(KINDS[name], Path(words[1]).resolve() / name)
            print(name, *(each.status for each in played.ended), flush=True)
        return 0
    if words[:1] == ["compare"] and words[2:]:
        differing = [_differ(Path(words[1]), Path(words[2]), name) for name in KINDS]
        return int(any(differing))
    if words[:1] == ["pages"] and words[1:]:
        for sort, page in pages(Path(words[1]).resolve()).items():
            print(sort, Path(words[1]) / page.relative_to(Path(words[1]).resolve()))
        return 0
    print(__doc__)
    return 2


def _differ(one: Path, other: Path, name: str) -> bool:
    """Print where two results of a kind differ, to the bit; return whether they do."""
    if not (one / name).is_dir() or not (other / name).is_dir():
        return False
    first, second = (values(opened(KINDS[name], each.resolve() / name)) for each in (one, other))
    apart = [key for key in {**first, **second} if not same(first.get(key), second.get(key))]
    print(f"{name}: {len(apart)} of {len(first)} values differ", *apart[:5], sep="\n    ")
    return bool(apart)


def same(one: object, other: object) -> bool:
    """Whether two values are equal to the bit, NaN to NaN."""
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        return one.dtype == other.dtype and one.tobytes() == other.tobytes()
    return repr(one) == repr(other)


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1:]))
