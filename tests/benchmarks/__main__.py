"""Benchmarks: clipped gradients, memory, accounting, a campaign, sampled clients; scores;
recording; a training of a table beside Opacus.

python tests/benchmarks [PART ...] [--smoke] [--device cuda] [--out FILE.md]
"""

import argparse
import json
import warnings
from dataclasses import asdict, replace
from pathlib import Path

import accounting
import campaign
import clients
import clipping
import distances
import memory
import recording
import scores
import torch
import training
from contestants import NETWORKS
from rich.console import Console
from tables import machine, markdown, show

PARTS = (
    "clipping",
    "memory",
    "accounting",
    "campaign",
    "scores",
    "distances",
    "clients",
    "recording",
    "training",
)


def main():
    """Measure the chosen parts; print every table when it is complete, and write them."""
    parser = argparse.ArgumentParser(prog="python tests/benchmarks", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"{', '.join(PARTS)}; all if none")
    parser.add_argument("--smoke", action="store_true", help="tiny sizes: does everything work?")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--out", type=Path, help="write the figures to FILE.md or FILE.json")
    parser.add_argument("--network", choices=tuple(NETWORKS), help="clipping of this one alone")
    parser.add_argument("--trials", type=int, help="trials of the campaign (1000)")
    parser.add_argument("--opacus-trials", type=int, help="models that Opacus is timed on (40)")
    parser.add_argument("--data-root", type=Path, help="MNIST's four IDX files; else random pixels")
    parser.add_argument("--adult-root", type=Path, help="Adult's two UCI files; else random rows")
    options = parser.parse_args()
    if unknown := set(options.parts) - set(PARTS):
        parser.error(
            f"no part is called {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}"
        )
    if options.out is not None and options.out.suffix not in (".md", ".json"):
        parser.error(f"--out {options.out} is neither FILE.md nor FILE.json")
    warnings.filterwarnings("ignore", message="Full backward hook is firing")
    console, tables = Console(), []
    for table in measure(options):
        show(table, console)
        tables.append(table)
        if options.out is not None:
            described = machine()
            figures = {"machine": described, "tables": [asdict(each) for each in tables]}
            as_text = options.out.suffix == ".md"
            text = markdown(tables, described) if as_text else json.dumps(figures)
            options.out.write_text(text, encoding="utf-8")


def measure(options):
    """Yield the tables of the chosen parts."""
    where = torch.device(options.device)
    # As fedsim does; PyTorch's default for convolutions is less precise, and faster.
    torch.backends.cudnn.allow_tf32 = False
    parts = options.parts or PARTS
    if "clipping" in parts:
        names = NETWORKS if options.network is None else [options.network]
        networks = {name: NETWORKS[name] for name in names}
        yield from clipping.measure(options.smoke, where, networks)
    if "memory" in parts:
        yield from memory.measure(options.smoke, where)
    if "accounting" in parts:
        yield from accounting.measure(options.smoke)
    if "campaign" in parts:
        size = campaign.SMOKE if options.smoke else campaign.Size()
        given = {"trials": options.trials, "opacus_trials": options.opacus_trials}
        size = replace(size, **{name: value for name, value in given.items() if value})
        yield from campaign.measure(size, options.data_root, where)
    if "scores" in parts:
        yield from scores.measure(scores.SMOKE if options.smoke else scores.CAMPAIGNS)
    if "distances" in parts:
        yield from distances.measure(options.smoke, options.data_root, options.adult_root)
    if "clients" in parts:
        yield from clients.measure(options.smoke)
    if "recording" in parts:
        yield from recording.measure(options.smoke)
    if "training" in parts:
        yield from training.measure(options.smoke)


if __name__ == "__main__":
    main()
