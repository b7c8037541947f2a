"""Do the tests from outside hold the guarantees? Change one operator, and run them.

    python tests/mutants.py [--count 40] [--seed 0] [--only GUARANTEE ...]

Draws mutants of the modules in which a guarantee lies, each in a copy of the tree, and runs tests
that know these modules by their mathematics, by messages or by commands. Exit status 1 if more
than one in twenty survives.
"""

import argparse
import ast
import os
import random
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]

OUTSIDE = ("tests/test_every_kind.py", "tests/test_golden.py")
MESSAGES = tuple(
    f"tests/fedsim/federation/client/test_{name}.py"
    for name in ("admission", "charge", "disclosure", "planning")
)

GUARANTEES = {
    "clipping": (
        ("fedsim/learning/training/clipping.py", "fedsim/learning/training/clipped_block.py"),
        ("tests/fedsim/learning/training", *OUTSIDE),
    ),
    "noise": (
        (
            "fedsim/privacy/noise.py",
            "fedsim/game/mechanisms/fixed_point.py",
        ),
        (
            "tests/fedsim/privacy",
            "tests/fedsim/game/mechanisms/test_fixed_point.py",
            "tests/fedsim/common",
            *OUTSIDE,
        ),
    ),
    "accounting": (
        (
            "fedsim/privacy/accounting.py",
            "fedsim/privacy/composition.py",
            "fedsim/privacy/renyi.py",
            "fedsim/privacy/loss_distribution.py",
            "fedsim/privacy/identifiability.py",
            "fedsim/privacy/releases.py",
        ),
        ("tests/fedsim/privacy", "tests/fedsim/game/mechanisms", *OUTSIDE),
    ),
    "ledger": (
        (
            "fedsim/federation/client/client_ledger.py",
            "fedsim/federation/runs/ledger.py",
            "fedsim/federation/runs/spending.py",
        ),
        (*MESSAGES, "tests/test_client_charges.py", *OUTSIDE),
    ),
    "consent": (
        ("fedsim/federation/client/admission.py",),
        (*MESSAGES, "tests/test_client_charges.py", *OUTSIDE),
    ),
    "posterior": (
        ("adversaries/attacks/posterior.py",),
        ("tests/adversaries/attacks", "tests/fedsim/game/mechanisms", *OUTSIDE),
    ),
    "bounds": (
        (
            "adversaries/bounds/rate_bounds.py",
            "adversaries/bounds/one_run.py",
            "adversaries/statistics/intervals.py",
            "adversaries/bounds/e_process.py",
        ),
        ("tests/adversaries", *OUTSIDE),
    ),
}
"""Each guarantee: the modules in which it lies, and the tests that hold it."""

COMPARED = {
    ast.Lt: ast.GtE,
    ast.LtE: ast.Gt,
    ast.Gt: ast.LtE,
    ast.GtE: ast.Lt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
}
COMPUTED = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult}
LIMIT_S = 1800
"""A mutant that hangs ends the command: look at it."""


def main():
    """Run the mutants; return the exit status."""
    parser = argparse.ArgumentParser(prog="python tests/mutants.py", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--count", type=int, default=40, help="mutants in all; default 40")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="+", choices=GUARANTEES, default=list(GUARANTEES))
    options = parser.parse_args()
    for guarantee in options.only:  # else a test that fails anyway would kill every mutant
        if status := _status(*GUARANTEES[guarantee]):
            print(f"the tests of {guarantee} end with {status} without a mutant")
            return 2
    draw, survivors = random.Random(options.seed), 0
    for number in range(options.count):
        guarantee = options.only[number % len(options.only)]
        modules, tests = GUARANTEES[guarantee]
        module = draw.choice(modules)
        text = (ROOT / module).read_text(encoding="utf-8")
        line, was, now, mutant = draw.choice(list(mutants(text)))
        # 1: a test failed; 2 and 4: the mutant cannot be imported.
        killed = _status((module,), tests, mutant) in (1, 2, 4)
        survivors += not killed
        print(
            f"{number + 1} {guarantee}: {'killed' if killed else 'SURVIVED'}: "
            f"{module}:{line}: {was} -> {now}",
            flush=True,
        )
    print(f"{options.count - survivors} of {options.count} killed")
    return int(survivors * 20 > options.count)


def mutants(text):
    """Yield the line, the old and the new expression, and the text of each mutant."""
    lines = text.splitlines(keepends=True)
    starts = [0]
    for each in lines:
        starts.append(starts[-1] + len(each.encode()))
    data, tree = text.encode(), ast.parse(text)
    messages = (each for each in ast.walk(tree) if isinstance(each, ast.JoinedStr))
    wording = {each for message in messages for each in ast.walk(message)}
    for node in filter(lambda node: node not in wording, ast.walk(tree)):
        if isinstance(node, ast.Compare | ast.BinOp | ast.BoolOp | ast.AugAssign):
            begin = starts[node.lineno - 1] + node.col_offset
            end = starts[(node.end_lineno or 0) - 1] + (node.end_col_offset or 0)
            was = ast.unparse(node)
            if _changed(node):
                now = ast.unparse(node)
                now = now if isinstance(node, ast.AugAssign) else f"({now})"
                changed = data[:begin] + now.encode() + data[end:]
                yield node.lineno, was, now, changed.decode()
                _changed(node)  # back, since an outer expression was or will be shown with it


def _changed(node):
    """Change an expression in place; twice is not at all. Return whether it can be changed."""
    match node:
        case ast.Compare(ops=[operator]) if type(operator) in COMPARED:
            node.ops = [COMPARED[type(operator)]()]
        case ast.BinOp(op=operator) | ast.AugAssign(op=operator) if type(operator) in COMPUTED:
            node.op = COMPUTED[type(operator)]()
        case ast.BoolOp():
            node.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        case _:
            return False
    return True


def _status(modules, tests, mutant=""):
    """Return pytest's exit status in a copy of the tree, whose first module is the mutant."""
    with tempfile.TemporaryDirectory() as temporary:
        tree = Path(temporary) / "tree"
        ignored = shutil.ignore_patterns(".git", "build", "__pycache__", ".*_cache", ".hypothesis")
        shutil.copytree(ROOT, tree, ignore=ignored)
        if mutant:
            (tree / modules[0]).write_text(mutant, encoding="utf-8")
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests],
            cwd=tree,
            env=os.environ | {"PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1"},
            capture_output=True,
            timeout=LIMIT_S,
            check=False,
        )
        return done.returncode


if __name__ == "__main__":
    sys.exit(main())
