"""Verification: what was changed is named, and a report follows from its files or is refused."""

import json
import os
import shutil
import stat
import subprocess
from unittest.mock import patch

import numpy as np
import pytest

from fedsim.commands.main import main
from fedsim.configuration.files import dump
from fedsim.federation.transcripts.records import NodeReply, ObservedRound, TranscriptFacts
from fedsim.federation.transcripts.writer import Writer

PROVEN = "Proven private"


@pytest.fixture(scope="module")
def played(small, tmp_path_factory):
    """The folder of a run without figures."""
    place = tmp_path_factory.mktemp("played")
    (place / "small.toml").write_text(dump(small()))
    command = ["run", str(place / "small.toml"), "--out", str(place / "run"), "--quiet"]
    with patch("fedsim.reports.page.Pictures.drawn", {}), pytest.raises(SystemExit, match="0"):
        main(command)
    return place / "run"


@pytest.fixture
def run(played, tmp_path):
    """A copy of the run."""
    return shutil.copytree(played, tmp_path / "run")


@pytest.fixture
def sealed(run, fedsim):
    """A copy of the run with its sums."""
    assert fedsim("verify", run)[0] == 0
    return run


def test_sums_are_written_where_there_are_none_and_other_programs_read_them(fedsim, run, tmp_path):
    status, text, _ = fedsim("verify", run)
    assert (status, "SHA256SUMS: there was none; written now" in text) == (0, True)
    assert stat.S_IMODE((run / "SHA256SUMS").stat().st_mode) == 0o600
    there = shutil.copytree(run, tmp_path / "elsewhere")
    subprocess.run(["sha256sum", "--quiet", "-c", "SHA256SUMS"], cwd=there, check=True)
    status, text, _ = fedsim("verify", there)
    assert (status, "are unchanged" in text, "the same numbers" in text) == (0, True, True)
    status, text, _ = fedsim("verify", there, "--json")
    assert (status, json.loads(text)["outcome"]) == (0, "verified")


def test_the_documented_lines_sign_the_sums(sealed, fedsim, tmp_path):
    key = tmp_path / "id_ed25519"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    sign = ["ssh-keygen", "-q", "-Y", "sign", "-n", "fedsim", "-f", key, sealed / "SHA256SUMS"]
    subprocess.run(sign, check=True)
    public = key.with_suffix(".pub").read_text()
    (tmp_path / "allowed_signers").write_text(f"officer {public}")
    check = ["ssh-keygen", "-Y", "verify", "-n", "fedsim", "-I", "officer", "-f"]
    check += [str(tmp_path / "allowed_signers"), "-s", "SHA256SUMS.sig"]
    sums = (sealed / "SHA256SUMS").read_bytes()
    for content, status in ((sums, 0), (sums + b"\n", 255)):
        assert subprocess.run(check, input=content, cwd=sealed, check=False).returncode == status
    assert fedsim("verify", sealed)[0] == 0  # the signature is no added file


def test_missing_and_added_files_are_named(sealed, fedsim):
    for name in (".report.html.partial", "figures/new.svg", "lock"):  # a run's lock is empty
        (sealed / name).parent.mkdir(exist_ok=True)
        (sealed / name).write_text(PROVEN)
        status, text, _ = fedsim("verify", sealed)
        assert (status, f"{name}: was added" in text) == (3, True)
        (sealed / name).unlink()
    (sealed / "lock").touch()
    (sealed / "facts.json").unlink()
    status, text, _ = fedsim("verify", sealed)
    assert (status, "facts.json: is missing" in text) == (4, True)


def test_no_link_is_followed(sealed, fedsim, tmp_path):
    (sealed / "config.toml").rename(tmp_path / "config")
    (sealed / "config.toml").symlink_to(tmp_path / "config")
    status, text, _ = fedsim("verify", sealed)
    assert (status, "config.toml: cannot be read" in text) == (4, True)
    (sealed / "SHA256SUMS").unlink()
    status, _, text = fedsim("verify", sealed)
    assert (status, "replace a link by the file" in text) == (2, True)
    (sealed / "config.toml").unlink()
    shutil.copy(tmp_path / "config", sealed / "config.toml")
    (sealed / "batches").rename(tmp_path / "batches")
    (sealed / "batches").symlink_to(tmp_path / "batches")
    assert fedsim("verify", sealed)[0] == 2
    assert not os.path.lexists(sealed / "SHA256SUMS")
    (sealed / "SHA256SUMS").symlink_to(tmp_path / "victim")  # nothing is written through it
    assert fedsim("verify", sealed)[0] == 2
    assert not (tmp_path / "victim").exists()


@pytest.mark.parametrize(
    "line",
    ["", "0" * 64, "0" * 63 + "  report.json", "0" * 64 + "  a\\nb", "{first}", "\\ " + "0" * 64],
)
def test_sums_that_are_none_are_refused(sealed, fedsim, line):
    path = sealed / "SHA256SUMS"
    whole = path.read_text()
    path.write_text(whole + line.format(first=whole.splitlines()[0]) + "\n")
    status, _, text = fedsim("verify", sealed)
    assert (status, text.count("\n")) == (2, 1)


def test_a_name_of_the_sums_leads_nowhere_else(sealed, fedsim, tmp_path):
    (tmp_path / "secret").write_text("x")
    with (sealed / "SHA256SUMS").open("a") as file:
        file.write(f"{'0' * 64}  ../secret\n{'0' * 64}  /etc/passwd\n")
    status, text, _ = fedsim("verify", sealed)
    assert (status, "../secret: is missing" in text, "passwd: is missing" in text) == (
        4,
        True,
        True,
    )


def test_a_report_that_does_not_follow_from_its_files_is_refused(fedsim, run):
    report = json.loads((run / "report.json").read_text())
    report["details"]["empirical"]["wins"] += 1
    (run / "report.json").write_text(json.dumps(report))
    status, text, _ = fedsim("verify", run)
    assert (status, "does not follow from the files: details.empirical.wins" in text) == (4, True)
    assert not (run / "SHA256SUMS").exists()
    report["versions"]["numpy"] = "1.0"  # facts.json has it too
    (run / "report.json").write_text(json.dumps(report))
    facts = json.loads((run / "facts.json").read_text())
    facts["versions"]["numpy"] = "1.0"
    (run / "facts.json").write_text(json.dumps(facts))
    status, text, _ = fedsim("verify", run)
    assert (status, "made with numpy 1.0, which is not installed here" in text) == (3, True)


def test_nothing_is_sealed_whose_files_are_missing(fedsim, run):
    (run / "transcript.npz").unlink()
    status, text, _ = fedsim("verify", run)
    assert (status, "was not made again" in text) == (3, True)
    assert not (run / "SHA256SUMS").exists()


def test_facts_that_contradict_their_run_are_refused_in_a_line(fedsim, sealed):
    facts = json.loads((sealed / "facts.json").read_text())
    facts["noise_multiplier"] *= 2
    (sealed / "facts.json").write_text(json.dumps(facts))
    (sealed / "SHA256SUMS").unlink()
    for command in ("verify", "report"):
        status, text, said = fedsim(command, sealed)
        assert (status, text, said.count("\n")) == (2, "", 1)
        assert "facts.json" in said
    assert not (sealed / "SHA256SUMS").exists()


def test_a_signature_without_its_sums_is_refused(fedsim, sealed):
    (sealed / "SHA256SUMS").rename(sealed / "SHA256SUMS.sig")
    status, text, _ = fedsim("verify", sealed)
    assert (status, "its signature is here" in text) == (4, True)
    assert not (sealed / "SHA256SUMS").exists()


@pytest.mark.parametrize("words", ["Who is the target?", "50"])
def test_a_page_that_says_something_else_than_its_report_is_refused(fedsim, run, words):
    page = run / "report.html"
    page.write_text(page.read_text().replace(words, f"{words[:-1]}1"))
    status, text, _ = fedsim("verify", run)
    assert (status, "report.html: is not the page of this report" in text) == (4, True)
    assert not (run / "SHA256SUMS").exists()


@pytest.mark.slow
@pytest.mark.figures
def test_figures_are_made_again_too(fedsim, experiment, tmp_path):
    run = tmp_path / "run"
    assert fedsim("run", experiment, "--out", run, "--quiet")[0] == 0
    drawn = len([*(run / "figures").iterdir()])
    status, text, _ = fedsim("verify", run)
    assert (status, f"{drawn + 1} are the same" in text) == (0, True)
    figure = run / "figures" / "belief.svg"
    figure.write_text(figure.read_text().replace("</svg>", f"<text>{PROVEN}</text></svg>"))
    (run / "SHA256SUMS").unlink()
    status, text, _ = fedsim("verify", run)
    assert (status, "figures/belief.svg: is not the page" in text) == (4, True)


def test_a_report_made_anew_at_another_confidence_follows_from_its_files(fedsim, sealed):
    stated = "audit.confidence=0.9", "privacy.delta=1e-4"
    assert fedsim("report", sealed, *stated)[0] == 0
    status, text, _ = fedsim("verify", sealed)
    assert (status, "report.json: has changed" in text) == (4, True)
    (sealed / "SHA256SUMS").unlink()
    assert fedsim("verify", sealed)[0] == 0


def test_a_training_is_verified_with_its_model(fedsim, small, tmp_path):
    path, out = tmp_path / "training.toml", tmp_path / "model"
    path.write_text(dump(small({"privacy.noise-source": "system"})))
    assert fedsim("train", path, "--out", out, "--quiet", "--fail-if", "epsilon > 50")[0] == 0
    assert fedsim("report", out, "--fail-if", "epsilon < 50")[0] == 3
    card = out / "public" / "model_card.json"
    stated = card.read_text()
    values = json.loads(stated)
    for towards in values["privacy"]["towards"]:
        towards["epsilon"] = dict.fromkeys(towards["epsilon"], 0.1)
    card.write_text(json.dumps(values))
    status, text, _ = fedsim("verify", out)
    assert (status, "public/model_card.json: does not follow" in text) == (4, True)
    assert not (out / "SHA256SUMS").exists()
    card.write_text(stated)
    status, text, _ = fedsim("verify", out)
    assert (status, "the same numbers" in text) == (0, True)
    assert text.startswith("SEALED")
    model = out / "public" / "model.safetensors"
    model.write_bytes(model.read_bytes()[:-1] + b"x")
    status, text, _ = fedsim("verify", out)
    assert (status, "public/model.safetensors: has changed" in text) == (4, True)


def test_the_audit_of_a_transcript_is_verified_with_it(fedsim, tmp_path):
    path, generator = tmp_path / "server.fedt", np.random.default_rng(0)
    mechanism = {"clipping": "server", "noise_multiplier": 1.0, "clipping_norm": 1.0}
    mechanism |= {"num_sampled_clients": 3, "aggregation": "mean"}
    with Writer(path, TranscriptFacts("server", "a test", "digits")) as writer:
        for round in range(1, 5):
            updates = generator.standard_normal((3, 200))
            updates /= np.linalg.norm(updates, axis=1, keepdims=True)
            after = updates.mean(0) + generator.standard_normal(200) / 3
            replies = {7 + j: NodeReply({"w": update}, 5.0) for j, update in enumerate(updates)}
            seen = {"aggregate": {"w": after}, "mechanism": mechanism}
            writer.append(ObservedRound(round, {"w": np.zeros(200)}, replies, **seen))
        writer.end()
    claim = "--claimed-epsilon", "10", "--claimed-delta", "1e-5", "--claimed-unit", "client"
    status, _, text = fedsim("audit", path, *claim, "--fail-if", "epsilon.low > 1")
    assert (status, "Gate shut: epsilon.low > 1" in text) == (3, True)
    audit = tmp_path / "server-audit"
    apart = shutil.copytree(audit, tmp_path / "apart")
    status, text, _ = fedsim("verify", apart)
    assert (status, "its transcript is not beside its directory" in text) == (3, True)
    status, text, _ = fedsim("verify", audit)
    assert (status, "the same numbers" in text) == (0, True)
    assert "../server.fedt/000001.npz" in (audit / "SHA256SUMS").read_text()
    status, _, text = fedsim("audit", path, *claim)
    assert (status, "a new report would no longer match it" in text) == (2, True)
    with (path / "000002.npz").open("ab") as file:
        file.write(b"\0")
    (path / "000005.npz").touch()
    status, text, _ = fedsim("verify", audit)
    assert (status, "../server.fedt/000002.npz: has changed" in text) == (4, True)
    assert "../server.fedt/000005.npz: was added" in text


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("app audit", "keeps no trials"),
        ("loop audit", "keeps no trials"),
        ("live audit", "needs the clients' data"),
    ],
)
def test_what_cannot_be_made_again_is_compared_by_its_sums(fedsim, tmp_path, kind, why):
    (tmp_path / "report.json").write_text(json.dumps({"kind": kind}))
    (tmp_path / "report.html").write_text("<p>1.5</p>")
    for _ in range(2):
        status, text, _ = fedsim("verify", tmp_path)
        assert (status, why in text, "SHA256SUMS alone" in text) == (3, True, True)
    (tmp_path / "report.html").write_text("<p>1.4</p>")
    status, text, _ = fedsim("verify", tmp_path)
    assert (status, "report.html: has changed" in text) == (4, True)
    (tmp_path / "SHA256SUMS").unlink()
    (tmp_path / "report.json").write_text('{"kind": "choice"}')
    status, _, text = fedsim("verify", tmp_path)
    assert (status, "reports a choice, which is neither a run nor an audit" in text) == (2, True)
