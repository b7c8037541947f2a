"""A benchmark's figures as data, as a table in the terminal and as markdown."""

import os
import platform
import subprocess
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import torch
from rich.table import Table as RichTable

import fedsim
from fedsim.common import device

Value = str | int | float | None


@dataclass(frozen=True)
class Table:
    """Figures under a title; a value that there is none of is None. `note` says how to read it."""

    title: str
    columns: tuple[str, ...]
    rows: list[tuple[Value, ...]]
    note: str = ""


def show(table, console):
    """Print a table; the columns of numbers stand to the right."""
    printed = RichTable(title=table.title, caption=table.note or None)
    for index, column in enumerate(table.columns):
        text = any(isinstance(row[index], str) for row in table.rows)
        printed.add_column(column, justify="left" if text else "right")
    for row in table.rows:
        printed.add_row(*map(_text, row))
    console.print(printed)


def markdown(tables, machine):
    """Return the tables and the machine that they were measured on."""
    lines = [", ".join(f"{name} {value}" for name, value in machine.items()) + "."]
    for table in tables:
        lines += ["", f"**{table.title}**", ""]
        lines += [_row(table.columns), _row(["---"] * len(table.columns))]
        lines += [_row(map(_text, row)) for row in table.rows]
        lines += ["", table.note] if table.note else []
    return "\n".join(lines) + "\n"


def machine():
    """Return what a figure depends on: the processor, the versions, the commit and the date."""
    described = {
        "CPU": _processor(),
        "cores": str(device.threads(0)),
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GiB",
    }
    if torch.cuda.is_available():
        described["GPU"] = torch.cuda.get_device_name()
    described |= {"Python": platform.python_version(), "torch": torch.__version__}
    described |= {name: version(name) for name in ("opacus", "flwr")}
    described["fedsim"] = fedsim.__version__
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty"]
    commit = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    return described | {"commit": commit or "unknown", "date": f"{datetime.now(UTC):%Y-%m-%d}"}


def _processor():
    information = Path("/proc/cpuinfo")
    lines = information.read_text().splitlines() if information.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _text(value):
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return value if isinstance(value, str) else f"{value:,}"


def _row(cells):
    return f"| {' | '.join(cells)} |"
