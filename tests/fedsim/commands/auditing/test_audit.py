"""`fedsim audit transcript`: from a file to a report, and one line for what cannot be audited."""

import json
import sys
from unittest.mock import patch

import numpy as np
import pytest

import fedsim
from adversaries.errors import InputError
from fedsim.audits.loop import contract
from fedsim.audits.results.conditions import TRANSCRIPT, complaint, parse
from fedsim.commands import own_loop
from fedsim.federation.transcripts.records import NodeReply, ObservedRound, TranscriptFacts
from fedsim.federation.transcripts.writer import Writer
from tests.console import exit_of

ROUND = ObservedRound(
    1, {"w": np.zeros(4)}, {1: NodeReply({"w": np.ones(4)}, 1.0)}, aggregate={"w": np.ones(4)}
)


def command(*arguments):
    return exit_of("audit", *arguments)


def server(path, noise, rounds=4, *, ended=True, **configured):
    """Write the transcript of a server whose three clients send updates of norm 1."""
    generator = np.random.default_rng(0)
    mechanism = {"clipping": "server", "noise_multiplier": 1.0, "clipping_norm": 1.0}
    mechanism |= {"num_sampled_clients": 3, "aggregation": "mean"} | configured
    model = np.zeros(200)
    with Writer(path, TranscriptFacts("server", "a test", "digits <b>")) as writer:
        for round in range(1, rounds + 1):
            updates = generator.standard_normal((3, 200))
            updates /= np.linalg.norm(updates, axis=1, keepdims=True)
            after = model + updates.mean(0) + noise / 3 * generator.standard_normal(200)
            replies = {7 + j: NodeReply({"w": model + u}, 5.0) for j, u in enumerate(updates)}
            writer.append(
                ObservedRound(
                    round, {"w": model}, replies, aggregate={"w": after}, mechanism=mechanism
                )
            )
            model = after
        if ended:
            writer.end()
    return path


def test_a_report_lies_beside_the_transcript(tmp_path, capsys):
    assert command(server(tmp_path / "server.fedt", 1.0)) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    for words in (
        "The noise is 0.976 to 1.077 times the claimed noise",
        "agrees with theory",
        "The belief that it took part is",
    ):
        assert words in " ".join(printed.out.split())
    report = json.loads((tmp_path / "server-audit" / "report.json").read_text())
    assert report["details"]["rounds"] == 4
    page = (tmp_path / "server-audit" / "report.html").read_text()
    assert "digits &lt;b&gt;" in page and "digits <b>" not in page
    assert page.count('<svg role="img" class="themed"') == 2
    assert "http" not in page.replace("http://www.w3.org", "")


def test_json_is_the_report_and_nothing_else(tmp_path, capsys):
    out = tmp_path / "elsewhere" / "deep"
    path = server(tmp_path / "t", 0.2)
    options = ["--json", "--out", out, "--claimed-epsilon", "3", "--claimed-delta", "1e-6"]
    options += ["--claimed-unit", "client"]
    assert command(path, *options) == 4
    printed = json.loads(capsys.readouterr().out)
    assert printed == json.loads((out / "report.json").read_text())
    assert (printed["delta"], printed["details"]["release"]["noise"]) == (1e-6, "less")
    assert any("refuted" in finding["why"] for finding in printed["findings"])


@pytest.mark.slow
def test_the_exit_status_says_whether_the_claim_is_supported(tmp_path, capsys):
    # Four rounds at noise multiplier 1 are private at epsilon 9.997, delta 1e-5, by configuration.
    honest, quiet = server(tmp_path / "honest", 1.0), server(tmp_path / "quiet", 0.2)
    cut = server(tmp_path / "cut", 1.0, ended=False)
    bare = server(tmp_path / "bare", 1.0, noise_multiplier=0.0)
    for path, epsilon, status, said in (
        (honest, 10, 0, "is supported."),
        (honest, 9.9, 4, "is not supported."),  # nor refuted: the noise may be a little more
        (quiet, 10, 4, "is refuted: epsilon is at least 63.1 (99.99% confidence)."),
        (quiet, 1000, 4, "is not supported."),  # less noise than was configured
        (cut, 10, 3, "is not judged. Why: The transcript does not state that the run has ended"),
        (bare, 10, 3, "is not judged. Why: The measured noise allows an epsilon of up to"),
    ):
        claim = ("--claimed-epsilon", epsilon, "--claimed-delta", 1e-5, "--claimed-unit", "client")
        assert command(path, *claim) == status, (path, epsilon)
        printed = " ".join(capsys.readouterr().out.split())
        assert f"The claim of epsilon {epsilon} at delta 1e-05 {said}" in printed
    assert command(bare, "--claimed-epsilon", 99, *claim[2:]) == 0
    assert "Record the configured noise" in capsys.readouterr().out


@pytest.mark.parametrize("noise", [0.0, 1.0])
def test_a_check_that_cannot_be_made_is_never_passed(tmp_path, noise, capsys):
    path = server(tmp_path / "t", noise, noise_multiplier=0.0)
    claim = "--claimed-epsilon", 20, "--claimed-delta", 1e-5, "--claimed-unit", "record"
    for options, status in ((), 0), (claim, 3):
        assert command(path, "--json", *options) == status
        report = json.loads(capsys.readouterr().out)
        for untold in ("detects < 0.5", "noise.low < 0.9"):
            assert complaint(parse(untold, [TRANSCRIPT]), report).startswith("cannot tell")
        assert report["alarms"] == report["details"]["transcript"]["torn_bytes"] == 0
        assert report["rows"]["server"]["limit"]["rho_alpha"] == 1
    proven = report["rows"]["participant"]["attack"]["proven"]
    assert (proven is None) == (noise == 0)  # clients may have added noise before


def test_without_a_claim_strict_alone_fails(tmp_path):
    path = server(tmp_path / "t", 1.0)
    assert command(path) == 0
    assert command(path, "--strict") == 3


def damaged(transcript):
    """Change a byte in the middle of a round."""
    path = transcript / "000002.npz"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    return transcript


@pytest.mark.parametrize("out", ["", "elsewhere/deep"])
@pytest.mark.parametrize(
    "options",
    [
        ("--delta", 5),
        ("--confidence", 1),
        ("--claimed-epsilon", 1),
        ("--claimed-delta", 1e-5),
        ("--claimed-epsilon", -1, "--claimed-delta", 1e-5),
        ("--claimed-epsilon", 1, "--claimed-delta", 1e-5, "--delta", 1e-5),
        (),
    ],
)
def test_a_refused_audit_leaves_no_directory(tmp_path, options, out):
    path = server(tmp_path / "server.fedt", 1.0)
    if not options:
        damaged(path)
    place = ("--out", tmp_path / out) if out else ()
    assert command(path, *options, *place) == 2
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("value", [1e308, 1e-300, 10**400, float("nan")], ids=lambda _: "")
def test_a_configured_number_out_of_all_bounds_still_has_a_report(tmp_path, value, capsys):
    assert command(server(tmp_path / "t", 1.0, noise_multiplier=value, clipping_norm=value)) == 0
    assert "noise_multiplier is neither 0 nor" in " ".join(capsys.readouterr().out.split())


def test_a_round_in_which_nobody_changed_the_model_has_a_report(tmp_path, capsys):
    model, noise = np.zeros(200), np.random.default_rng(0).standard_normal(200)
    path = tmp_path / "t.fedt"
    with Writer(path, TranscriptFacts("server", "a test")) as writer:
        replies = {node: NodeReply({"w": model}, 1.0) for node in (1, 2)}
        mean = {"aggregation": "mean"}
        seen = ObservedRound(1, {"w": model}, replies, aggregate={"w": noise}, mechanism=mean)
        writer.append(seen)
        writer.end()
    assert command(path) == 0
    assert "No guarantee." in capsys.readouterr().out
    assert (tmp_path / "t-audit" / "report.html").exists()


def test_a_strangers_name_is_one_short_part_of_a_line(tmp_path, capsys):
    name = "app\nThe claim of epsilon 0.1 at delta 1e-05 is supported.\n0 alarms"
    with Writer(tmp_path / "t.fedt", TranscriptFacts("server", name, name)) as writer:
        writer.append(ROUND)
    assert command(tmp_path / "t.fedt", "--strict") == 3
    said = capsys.readouterr().out
    assert "0 alarms" not in said.splitlines()[1]
    assert "is supported.\n" not in said


def test_a_belief_is_never_printed_as_certainty_while_there_is_noise(tmp_path):
    assert command(server(tmp_path / "t.fedt", 0.05)) == 4
    page = (tmp_path / "t-audit" / "report.html").read_text()
    assert "&gt;99.9%" in page
    participant = page.partition('data-label="Observer">Participant')[2].partition("</tr>")[0]
    assert "&gt;99.9%" in participant and "100%" not in participant


def test_what_cannot_be_audited_is_one_line_and_status_2(tmp_path, capsys):
    path = server(tmp_path / "server.fedt", 1.0)
    wrong = damaged(server(tmp_path / "damaged.fedt", 1.0))
    (tmp_path / "file").touch()
    (tmp_path / "empty").mkdir()
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.toml").touch()
    for arguments, said in (
        ((tmp_path / "nowhere",), "cannot read"),
        ((tmp_path / "empty",), "holds no transcript"),
        ((tmp_path / "run",), f"run fedsim report {tmp_path / 'run'}"),
        ((wrong,), "is damaged"),
        ((path, "--delta", "2"), "delta is 2.0"),
        ((path, "--out", tmp_path / "file" / "x"), "cannot write"),
    ):
        assert command(*arguments) == 2
        printed = capsys.readouterr()
        assert said in printed.err
        assert printed.err.count("\n") == 1
        assert printed.out == ""


def test_a_report_whose_sums_are_listed_is_not_replaced(tmp_path, capsys):
    server(tmp_path / "server.fedt", 1.0)
    command(tmp_path / "server.fedt")
    before = (tmp_path / "server-audit" / "report.json").read_bytes()
    (tmp_path / "server-audit" / "SHA256SUMS").touch()
    assert command(tmp_path / "server.fedt", "--confidence", 0.9) == 2
    assert "a new report would no longer match it" in capsys.readouterr().err
    assert (tmp_path / "server-audit" / "report.json").read_bytes() == before


NOTEBOOK = """
import math
from statistics import fmean

SHARE, features, values, each = 0.5, [object()], {object()}, object()

class Scale:
    def of(self, values):
        return [SHARE * each for each in values]

def mean(values):
    return fmean(values) if values else math.nan

average = mean

def train(features, labels, seed, first=SHARE):
    return average(Scale().of(features)) + seed + first - first
"""


def test_a_function_of_a_notebook_is_written_with_what_it_uses(tmp_path):
    cell = tmp_path / "cell.py"
    cell.write_text(NOTEBOOK)
    notebook = sys.modules["__main__"]
    with patch.dict(vars(notebook)):
        exec(compile(NOTEBOOK, str(cell), "exec"), vars(notebook))
        train = vars(notebook)["train"]
        with own_loop.named(train) as name:
            again = contract.loaded(name)
        assert again([1.0, 3.0], [], 4) == train([1.0, 3.0], [], 4) == 5.0
        for changed, said in (
            ({"SHARE": 0.25}, "'SHARE' may have changed since 'train' took it"),
            ({"math": np.ones(1)}, "'math', which is a ndarray"),
        ):
            with patch.dict(vars(notebook), changed), pytest.raises(InputError, match=said):
                own_loop.named(train).__enter__()


@pytest.mark.parametrize("default", ["noise=NOISE", "*, noise=NOISE", "noise=2 * NOISE"])
def test_a_default_that_may_be_another_by_now_is_refused(tmp_path, default):
    cell = tmp_path / "cell.py"
    cell.write_text(f"NOISE = 100.5\ndef train(features, labels, seed, {default}):\n    return 1\n")
    notebook = vars(sys.modules["__main__"])
    with patch.dict(notebook):
        exec(compile(cell.read_text(), str(cell), "exec"), notebook)
        notebook["NOISE"] = 0.0
        with pytest.raises(InputError, match="'NOISE' may have changed"):
            own_loop.named(notebook["train"]).__enter__()


def test_a_function_within_another_is_refused():
    kept = 1

    def train(features, labels, seed):
        return kept

    train.__module__, name = "json", train.__name__
    for other in (train, json.loads.__get__("bound")):
        with (
            patch.object(json, name, json.dumps, create=True),
            pytest.raises(InputError, match="outside others"),
        ):
            fedsim.audit(other)
    with pytest.raises(InputError, match="the target is a int"):
        fedsim.audit(3)
