"""Pins: a small result of every kind, from this tree and from another, and where they differ.

python tests/pins [--against REF] [--only NAME ...] [--save DIR] [--saved DIR] [--jobs N]

Equal must be: every array of transcripts and models, every row of ledgers, every leaf of reports
and of JSON on standard output, and every exit status. Left out are times, paths and the code's own
digest. `--save` keeps what the other tree gave; `--saved` takes it instead of making it again.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parents[1]

from fingerprints import Values, of_directory, of_json  # noqa: E402
from kinds import Kind, kinds  # noqa: E402

RENAMED: dict[str, str] = {}
"""Keys that are renamed on purpose, in every kind: prefix of a key there -> prefix here.

A key is "FILE: dotted.key", without the directory: "report.json: verdict".
"""

REMOVED: tuple[str, ...] = ()
"""Prefixes of keys that this tree does not have any more, on purpose."""

ADDED: tuple[str, ...] = (
    *("config.toml: run.author", "facts.json: target", "facts.json: data_sha256"),
    *("report.json: author", "report.json: trainings."),
)
"""Prefixes of keys that this tree alone has, on purpose."""

SHOWN = 5
"""Differences that are shown of a kind."""

LIMIT_S = 600


def main() -> int:
    """Compare the trees kind by kind; return the exit status: 1 if any kind differs."""
    options = _options()
    chosen = [kind for kind in kinds(ROOT) if not options.only or kind.name in options.only]
    made = [kind for kind in chosen if not kind.skipped]
    for kind in chosen:
        if kind.skipped:
            print(f"{kind.name}: skipped, since {kind.skipped}")
    with tempfile.TemporaryDirectory() as temporary, _other(options) as other:
        places = Path(temporary)
        pool = ThreadPoolExecutor(options.jobs)
        try:
            pairs = [
                (
                    kind,
                    pool.submit(_reference, kind, other, options, places),
                    pool.submit(result, kind, ROOT, places / "here" / kind.name),
                )
                for kind in made
            ]
            equal = [_compared(kind, old.result(), new.result()) for kind, old, new in pairs]
        finally:
            pool.shutdown(cancel_futures=True)
    return 0 if all(equal) else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python tests/pins", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    names = [kind.name for kind in kinds(ROOT)]
    parser.add_argument("--against", default="main", metavar="REF", help="git ref; default main")
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=names, help=", ".join(names))
    parser.add_argument("--save", type=Path, metavar="DIR", help="keep the other tree's values")
    parser.add_argument("--saved", type=Path, metavar="DIR", help="values that --save has kept")
    parser.add_argument("--jobs", type=int, default=2, help="processes at a time; default 2")
    options = parser.parse_args()
    if options.save and options.saved:
        parser.error("--saved makes nothing that --save could keep; leave one of them out")
    if options.saved and not options.saved.is_dir():
        parser.error(f"there is no directory '{options.saved}'; make it with --save")
    return options


@contextmanager
def _other(options: argparse.Namespace) -> Iterator[Path | None]:
    """Check the other ref out, if its values are not saved, and remove that afterwards."""
    if options.saved:
        yield None
        return
    with tempfile.TemporaryDirectory() as temporary:
        tree = Path(temporary) / "tree"
        git = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run([*git, "add", "--quiet", "--detach", tree, options.against], check=True)
        try:
            yield tree
        finally:
            subprocess.run([*git, "remove", "--force", tree], check=True)


def _reference(
    kind: Kind, tree: Path | None, options: argparse.Namespace, places: Path
) -> Values | None:
    """Return the values of the other tree, made or saved; None if they were not saved."""
    if tree is None:
        saved = options.saved / f"{kind.name}.json"
        return json.loads(saved.read_text(encoding="utf-8")) if saved.exists() else None
    values = result(kind, tree, places / "there" / kind.name)
    if options.save:
        options.save.mkdir(parents=True, exist_ok=True)
        text = json.dumps(values, indent=1)
        (options.save / f"{kind.name}.json").write_text(text, encoding="utf-8")
    return values


def result(kind: Kind, tree: Path, directory: Path) -> Values:
    """Run the commands of a kind with the code of a tree, and return the values of what they leave.

    Args:
        kind: of the result.
        tree: a checkout.
        directory: to run in; it is made.
    """
    directory.mkdir(parents=True)
    words = {str(directory): "DIR", str(tree): "TREE"}
    statuses: Values = {}
    environment = os.environ | {"PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1", "COLUMNS": "200"}
    for number, command in enumerate(kind.commands, 1):
        program, *arguments = (each.replace("{tree}", str(tree)) for each in command)
        script = program.endswith(".py")
        start = [str(HERE / program)] if script else ["-m", "fedsim", program]
        done = subprocess.run(
            [sys.executable, *start, *arguments],
            cwd=directory,
            env=environment,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        # What goes wrong is part of the result: a refusal says the same in one line.
        said = done.stderr.strip().splitlines()[-1:] if done.returncode in (1, 2) else []
        told = "".join(said).replace(str(directory), "DIR").replace(str(tree), "TREE")
        broken = " (traceback)" if "Traceback" in done.stderr else ""
        statuses[f"{number} {program}: exit status"] = f"{done.returncode} {told}".strip() + broken
        if "--json" in arguments and done.stdout.lstrip().startswith(("{", "[")):
            printed = of_json(done.stdout, words)
            statuses |= {f"{number} {program}: {key}": value for key, value in printed.items()}
    return statuses | of_directory(directory, words)


def _compared(kind: Kind, there: Values | None, here: Values) -> bool:
    """Print a line for a kind, with the first differences; return whether there are none."""
    if there is None:
        print(f"{kind.name}: not saved", flush=True)
        return False
    there = {_renamed(key): value for key, value in there.items() if not _starts(key, REMOVED)}
    here = {key: value for key, value in here.items() if key in there or not _starts(key, ADDED)}
    # As it is once saved and read: NaN is not equal to itself, and its text is.
    apart = [
        key
        for key in {**there, **here}
        if _text(there.get(key, MISSING)) != _text(here.get(key, MISSING))
    ]
    failed = [key for key, value in here.items() if _failed(key, value)]
    if failed and not apart:
        print(f"{kind.name}: equal, but a command failed in both: {here[failed[0]]}", flush=True)
        return False
    counted = f"{len(here)} values"
    if not apart:
        print(f"{kind.name}: equal ({counted})", flush=True)
        return True
    print(f"{kind.name}: {len(apart)} of {counted} differ", flush=True)
    for key in apart[:SHOWN]:
        print(f"    {key}: {there.get(key, MISSING)!r} there, {here.get(key, MISSING)!r} here")
    return False


MISSING = "(no such key)"


def _failed(key: str, value: Any) -> bool:
    """Whether a command failed; a refusal or a verdict is a result."""
    return key.endswith("exit status") and str(value).endswith(" (traceback)")


def _renamed(key: str) -> str:
    """Return the key that this tree has for a key of the other's."""
    for old, new in RENAMED.items():
        if _named(key).startswith(old):
            return key.replace(old, new, 1)
    return key


def _starts(key: str, prefixes: tuple[str, ...]) -> bool:
    return _named(key).startswith(prefixes)


def _named(key: str) -> str:
    """Return a key without the directory of its file."""
    file, _, name = key.partition(": ")
    return f"{file.rpartition('/')[2]}: {name}"


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the worktree is removed
    sys.exit(main())
