"""What holds for every kind of result: its JSON, its pages, its resumption, its verification."""

import json
import multiprocessing
import re
import time
from dataclasses import replace
from html import unescape

import pytest

from .corpus import KINDS, Played, fedsim, play, values

RESUMABLE = [kind.name for kind in KINDS.values() if kind.resumes]
QUICK = ("digits", "train-digits", "budget")
"""Kinds that are killed in every run of the tests; the others in the slow ones."""

FRESH = multiprocessing.get_context("forkserver")
FRESH.set_forkserver_preload(["tests.corpus", "fedsim.commands.run", "fedsim.server_app"])
"""Processes that have imported what they need when they begin."""

GAPS = re.compile(r"\b(?:nan|NaN|inf|None|null|undefined)\b|\{\}|\[\]|\{\{|\}\}|<[a-z_]+ object at")
SPOKEN = re.compile(r"(?s)<(script|style|svg|pre|code)\b.*?</\1>|<[^>]+>")


def _refused(text):
    raise AssertionError(f"{text} is not JSON")


def _once(pairs):
    names = [name for name, _ in pairs]
    assert len({*names}) == len(names), "a key stands twice"
    return dict(pairs)


@pytest.mark.parametrize("name", KINDS)
def test_every_document_is_strict_json(name, played):
    texts = [path.read_text(encoding="utf-8") for path in played.folder.rglob("*.json")]
    for path in played.folder.rglob("*.jsonl"):
        texts += path.read_text(encoding="utf-8").splitlines()
    for command, ended in zip(played.kind.commands, played.ended, strict=True):
        if "--json" in command and ended.status != 2:
            texts.append(ended.output)
    assert texts
    for text in texts:
        json.loads(text, parse_constant=_refused, object_pairs_hook=_once)


@pytest.mark.parametrize("name", KINDS)
def test_a_page_has_no_gaps(name, played):
    for page in played.folder.rglob("*.html"):
        words = unescape(SPOKEN.sub(" ", page.read_text(encoding="utf-8")))
        found = GAPS.search(words)
        assert found is None, words[max(0, found.start() - 60) : found.end() + 60]


@pytest.mark.parametrize("name", KINDS)
def test_what_is_refused_is_one_line_and_leaves_nothing(name, played):
    for command, ended in zip(played.kind.commands, played.ended, strict=True):
        assert "Traceback" not in ended.errors
        if ended.status == 2:
            assert ended.errors.count("\n") == 1
            assert not (played.folder / command[command.index("--out") + 1]).exists()


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[] if name in QUICK else pytest.mark.slow) for name in RESUMABLE],
)
def test_a_killed_one_resumes_to_the_same_bits(name, played, tmp_path):
    kind = KINDS[name]
    _killed(kind, tmp_path)
    command = (kind.commands[0][0], kind.resumes, "--quiet")
    resumed = fedsim(command, tmp_path)
    assert resumed.status == 0, resumed.errors
    again, before = values(Played(kind, tmp_path, (resumed,) * len(kind.commands))), values(played)
    # The ledger has what was released twice, and reports count it.
    here, there = ({k: v for k, v in each.items() if _array(k)} for each in (again, before))
    assert sorted(here) == sorted(there)
    assert [key for key in here if here[key].tobytes() != there[key].tobytes()] == []
    # What was charged before the kill stays charged.
    assert _spent(tmp_path / kind.resumes) >= _spent(played.folder / kind.resumes) * (1 - 1e-9)


def _spent(run):
    """Return epsilon of all rounds of a run or a training, by its own report."""
    report = json.loads((run / "report.json").read_text())
    if report.get("kind") == "training":
        return float(report["details"]["rounds"][-1]["epsilon"])
    found, vantage = report["details"], report["vantage"]
    together = found["released"] or {"epsilon": found["budget"]["epsilon"][vantage]}
    return float(together["epsilon"])


def test_a_killed_run_stays_spent_and_goes_on_with_the_budget_it_names(tmp_path):
    begun = (*KINDS["digits"].commands[0], "privacy.noise-source=system")
    _killed(replace(KINDS["digits"], commands=(begun,)), tmp_path)
    refused = fedsim(begun, tmp_path)
    assert refused.status == 2
    planned = float(re.findall(r"configuration plans ([\d.]+\d)", refused.errors)[0])
    (named,) = {*re.findall(r"stop-at ?= ?([\d.]+\d)", refused.errors)}
    ended = fedsim((*begun, f"privacy.stop-at={named}"), tmp_path)
    assert ended.status == 0, ended.errors
    assert planned < _spent(tmp_path / "run") <= float(named) < 2 * planned


def _array(key):
    return key.startswith(("run/transcript.npz: ", "run/public/model.safetensors: ")) and (
        "experiment" not in key and "epsilon_spent" not in key
    )


def _killed(kind, folder):
    """Start a command in a process of its own, and kill it once a round has been charged."""
    process = FRESH.Process(target=fedsim, args=(kind.commands[0], folder))
    process.start()
    ledger = folder / kind.resumes / "ledger.jsonl"
    while process.is_alive():
        if ledger.exists() and ledger.read_bytes().count(b"\n") >= 2:
            process.kill()
        time.sleep(0.002)
    assert not (folder / kind.resumes / "report.json").exists(), "it ended before it was killed"


@pytest.mark.figures
@pytest.mark.parametrize("name", QUICK)
def test_a_changed_byte_is_refused(name, tmp_path):
    run = play(KINDS[name], tmp_path / "made", figures=True).folder / "run"
    verify = ("verify", str(run))
    assert fedsim(verify, tmp_path).status == 0  # it writes the sums
    assert fedsim(verify, tmp_path).status == 0
    files = [path for path in run.rglob("*") if path.is_file() and path.stat().st_size]
    assert {"report.html", "ledger.jsonl", "SHA256SUMS"} <= {path.name for path in files}
    for path in files:
        content = path.read_bytes()
        changed = bytearray(content)
        changed[len(changed) // 2] ^= 1
        path.write_bytes(changed)
        refused = {2, 4} if path.name == "SHA256SUMS" else {4}
        assert fedsim(verify, tmp_path).status in refused, path
        path.write_bytes(content)
    assert fedsim(verify, tmp_path).status == 0
