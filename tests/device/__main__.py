"""What each kind of result costs on a device, and whether it computes what the CPU computes.

python tests/device [--only NAME ...] [--json] [--record]

The device is `accelerator.py`: no GPU is needed. Exit status 1 if a kind fails or differs.
"""

import argparse
import dataclasses
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import runs
from cases import cases

COSTS = Path(__file__).with_name("costs.json")
HEADER = ("kind", "launches", "waits", "MiB moved", "MiB copied", "peak MiB", "equals the CPU")


def main():
    """Print a row for each kind; return the exit status."""
    parser = argparse.ArgumentParser(prog="python tests/device", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=list(cases()))
    parser.add_argument("--json", action="store_true", help="one JSON document a kind and line")
    parser.add_argument("--record", action="store_true", help="keep launches and waits as limits")
    options = parser.parse_args()
    runs.prepare()
    if not options.json:
        print("| " + " | ".join(HEADER) + " |\n|" + "---|" * len(HEADER))
    good = True
    for name in options.only or cases():
        outcome = runs.compare(name)
        found = outcome.verdict
        good &= found == "yes" or found.startswith("to ")
        if options.record:
            _record(outcome)
        if options.json:
            print(json.dumps(_document(outcome)), flush=True)
        else:
            print("| " + " | ".join((name, *_row(outcome), found)) + " |", flush=True)
            for line in _details(outcome):
                print(f"    {line}", file=sys.stderr, flush=True)
    return 0 if good else 1


def _record(outcome):
    costs = json.loads(COSTS.read_text(encoding="utf-8")) if COSTS.exists() else {}
    side = outcome.device
    costs[outcome.name] = {"launches": side.launches, "waits": side.waits}
    lines = [f"  {json.dumps(name)}: {json.dumps(cost)}" for name, cost in sorted(costs.items())]
    COSTS.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def _row(outcome):
    side = outcome.device
    sizes = (f"{size / 2**20:,.1f}" for size in (side.bytes, side.copied, side.peak))
    return [f"{side.launches:,}", f"{side.waits:,}", *sizes]


def _details(outcome):
    said = outcome.device.said.splitlines()[-12:] if outcome.verdict in ("fails", "refused") else []
    return [*said, *outcome.device.mixes, *outcome.unlike[:8]]


def _document(outcome):
    found = {"kind": outcome.name, "verdict": outcome.verdict, "unlike": outcome.unlike}
    return found | dataclasses.asdict(outcome.device)


if __name__ == "__main__":
    sys.exit(main())
