"""Exit with 1 unless two runs have the same report, apart from when, where and how fast."""

import json
import sys
from pathlib import Path

APART = {"created", "timing", "runtime"}


def entries(run):
    report = json.loads((Path(run) / "report.json").read_text(encoding="utf-8"))
    return report | report.pop("details")


first, second = map(entries, sys.argv[1:3])
different = [
    name
    for name in sorted({*first, *second} - APART)
    if first.get(name, "missing") != second.get(name, "missing")
]
for name in different:
    print(f"{name}: {first.get(name, 'missing')} and {second.get(name, 'missing')}")
print("the reports differ" if different else f"the same report ({len(first)} entries)")
sys.exit(1 if different else 0)
