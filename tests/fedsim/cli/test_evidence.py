"""Evidence: another machine sees that nothing was changed, and names what was."""

import base64
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_public_key,
)

from adversaries import registry
from adversaries.errors import InputError
from fedsim.cli.main import main
from fedsim.config import Config, dump
from fedsim.federation.transcripts.records import NodeReply, ObservedRound, TranscriptFacts
from fedsim.federation.transcripts.writer import Writer
from fedsim.report.evidence import derivation, envelope, statement, verification
from fedsim.report.evidence.verification import Outcome

Fedsim = Callable[..., tuple[int, str, str]]


@dataclass
class Signer:
    """Signs and verifies by the command line, with a key of its own."""

    fedsim: Fedsim
    private: Path
    public: Path

    def sign(self, what: Path) -> None:
        status, _, said = self.fedsim("sign", what, "--key", self.private)
        assert status == 0, said

    def verify(self, evidence: Path) -> tuple[int, str]:
        status, said, err = self.fedsim("verify", evidence, "--key", self.public)
        return status, said + err


@pytest.fixture
def signer(fedsim: Fedsim, tmp_path: Path) -> Signer:
    status, _, said = fedsim("sign", "--new-key", tmp_path / "key.pem")
    assert (status, "key.public.pem" in said) == (0, True)
    return Signer(fedsim, tmp_path / "key.pem", tmp_path / "key.public.pem")


@pytest.fixture(scope="module")
def played(small: Callable[..., Config], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run without figures."""
    place = tmp_path_factory.mktemp("played")
    (place / "small.toml").write_text(dump(small()))
    command = ["run", str(place / "small.toml"), "--out", str(place / "run"), "--quiet"]
    with patch("fedsim.report.page.Pictures.drawn", {}), pytest.raises(SystemExit, match="0"):
        main(command)
    return place / "run"


@pytest.fixture
def run(played: Path, signer: Signer, tmp_path: Path) -> Path:
    """A signed copy of the run."""
    signer.sign(shutil.copytree(played, tmp_path / "run"))
    return tmp_path / "run"


def test_another_machine_verifies_it_and_says_which_versions_differ(
    signer: Signer, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = shutil.copytree(run, tmp_path / "elsewhere")
    shutil.rmtree(run)
    status, said = signer.verify(there / "evidence.json")
    assert status == 0
    assert "VERIFIED" in said and "derived again from the other files" in said
    other = statement.versions() | {"numpy": "2.0"}
    monkeypatch.setattr(verification, "versions", lambda: other)
    status, said = signer.verify(there / "evidence.json")
    assert (status, "numpy" in said, "2.0 here" in said) == (0, True, True)


def test_one_changed_byte_of_any_file_is_named(signer: Signer, run: Path) -> None:
    evidence, public = run / "evidence.json", envelope.read_public(signer.public)
    files = [path for path in run.rglob("*") if path.is_file() and path.stat().st_size]
    changed = set()
    for path in files:
        name, content = path.relative_to(run).as_posix(), path.read_bytes()
        if path == evidence:
            continue
        middle = len(content) // 2
        path.write_bytes(content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :])
        found = verification.verify(evidence, public)
        refuted = [check.of for check in found.checks if check.outcome is not Outcome.VERIFIED]
        assert (found.outcome, refuted) == (Outcome.REFUTED, [name])
        path.write_bytes(content)
        changed.add(name)
    assert changed >= {"report.json", "report.html", "config.toml", "ledger.jsonl", "facts.json"}
    assert changed >= {"transcript.npz", "batches/000000.npz", "identity", "events.jsonl"}
    assert signer.verify(evidence)[0] == 0


def test_missing_files_are_named_and_added_ones_are_no_evidence(signer: Signer, run: Path) -> None:
    evidence = run / "evidence.json"
    (run / "accepted.json").write_text("{}")
    status, said = signer.verify(evidence)
    assert (status, "accepted.json: exists, but" in said) == (3, True)
    (run / "facts.json").unlink()
    (run / "config.toml").rename(run / "config")
    (run / "config.toml").symlink_to(run / "config")
    status, said = signer.verify(evidence)
    assert status == 4
    assert "facts.json: cannot be read: No such file" in said
    assert "config.toml: cannot be read: " in said


def test_without_the_signers_key_nobody_can_tell(
    fedsim: Fedsim, signer: Signer, run: Path, tmp_path: Path
) -> None:
    evidence = run / "evidence.json"
    status, said, _ = fedsim("verify", evidence, "--json")
    assert (status, json.loads(said)["outcome"]) == (3, "cannot tell")
    other = envelope.create(tmp_path / "other.pem")
    status, said, _ = fedsim("verify", evidence, "--key", other)
    assert (status, "REFUTED" in said, "not by the key" in said) == (4, True, True)
    status, _, said = fedsim("verify", evidence, "--key", signer.private)
    assert (status, "is not the signer's Ed25519 public key" in said) == (2, True)


def test_it_is_an_in_toto_statement_in_an_envelope_of_dsse(signer: Signer, run: Path) -> None:
    sealed = json.loads((run / "evidence.json").read_text())
    payload = base64.b64decode(sealed["payload"])
    signed = f"DSSEv1 28 application/vnd.in-toto+json {len(payload)} ".encode() + payload
    key = load_pem_public_key(signer.public.read_bytes())
    (signature,) = sealed["signatures"]
    key.verify(base64.b64decode(signature["sig"]), signed)  # type: ignore[union-attr, call-arg, arg-type]
    told = json.loads(payload)
    assert told["_type"] == "https://in-toto.io/Statement/v1"
    report = json.loads((run / "report.json").read_text())
    assert told["predicate"]["numbers"]["advantage"] == report["empirical"]["advantage"]
    assert told["predicate"]["seeds"]["run.seed"] == report["seed"]
    assert {"fedsim", "adversaries"} == set(told["predicate"]["code"])


def test_an_altered_envelope_is_refuted_or_no_evidence(
    signer: Signer, run: Path, tmp_path: Path
) -> None:
    whole = json.loads((run / "evidence.json").read_text())
    payload = base64.b64decode(whole["payload"]).decode()

    def altered(**changes: object) -> tuple[int, str]:
        path = run / "altered-evidence.json"
        path.write_text(json.dumps(whole | changes))
        return signer.verify(path)

    def with_payload(text: str) -> tuple[int, str]:
        return altered(payload=base64.b64encode(text.encode()).decode())

    (own,) = whole["signatures"]
    other = envelope.read_private(_another(tmp_path))
    foreign = base64.b64encode(other.sign(envelope.pre_authentication(payload.encode()))).decode()
    assert altered()[0] == 0
    status, said = with_payload(payload.replace('"run.seed":0', '"run.seed":1'))
    assert (status, "the evidence was altered" in said) == (4, True)
    # A signature of somebody else under the signer's name, instead of the signer's or beside it.
    assert altered(signatures=[own | {"sig": foreign}])[0] == 4
    assert altered(signatures=[own | {"sig": foreign}, own])[0] == 0
    for status, said in (
        altered(extra=1),
        altered(signatures=[own | {"key": 1}]),
        altered(signatures=[]),
        altered(payloadType="text/plain"),
        altered(payload=whole["payload"][:-3]),
        with_payload(payload.replace("{", '{"extra":1,', 1)),
        with_payload(payload.replace('"kind":"run"', '"kind":"run","kind":"run"')),
        with_payload(payload.replace('"report":"report.json"', '"report":"../report.json"')),
        with_payload(payload.replace('"name":"config.toml"', '"name":"/etc/passwd"')),
    ):
        assert (status, said.count("\n")) == (2, 1)


def _another(tmp_path: Path) -> Path:
    envelope.create(tmp_path / "another.pem")
    return tmp_path / "another.pem"


def test_a_report_that_does_not_follow_from_its_files_is_not_signed_and_not_verified(
    signer: Signer, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = json.loads((run / "report.json").read_text())
    report["empirical"]["wins"] += 1
    (run / "report.json").write_text(json.dumps(report))
    (run / "evidence.json").unlink()
    status, _, said = signer.fedsim("sign", run, "--key", signer.private)
    assert (status, "(empirical.wins)" in said) == (2, True)
    assert not (run / "evidence.json").exists()
    with monkeypatch.context() as patched:  # who signs with a program of his own
        made = statement.derivation.MadeBy
        patched.setattr(statement.derivation, "derived", lambda *given: made(given[-1].values, {}))
        signer.sign(run)
    status, said = signer.verify(run / "evidence.json")
    assert (status, "does not follow from the files: empirical.wins" in said) == (4, True)


PROVEN = "Proven private"


def test_a_page_that_says_something_else_than_its_report_is_not_signed_and_not_verified(
    signer: Signer, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "report.html"
    page, words = run / name, "Who is the target?"
    page.write_text(page.read_text().replace(words, f"{words} {PROVEN}"))
    assert PROVEN in page.read_text()
    (run / "evidence.json").unlink()
    status, _, said = signer.fedsim("sign", run, "--key", signer.private)
    assert (status, said.count("\n")) == (2, 1)
    assert f"{name} differs from what fedsim derives from report.json" in said
    with monkeypatch.context() as patched:  # who signs with a program of his own
        patched.setattr(statement, "_refuse_others", lambda *given: None)
        signer.sign(run)
    status, said = signer.verify(run / "evidence.json")
    assert (status, f"{name}: is not the page of this report" in said) == (4, True)
    assert "VERIFIED" not in said


def test_files_that_were_added_after_signing_are_named_whatever_they_are_called(
    signer: Signer, run: Path
) -> None:
    names = ("other.html", ".report.html.partial", "proven-evidence.json", "figures/new.svg")
    for name in (*names, "lock"):  # the lock of a run is empty
        (run / name).write_text(PROVEN)
        status, said = signer.verify(run / "evidence.json")
        assert (status, f"{name}: exists, but the statement does not cover" in said) == (3, True)
        (run / name).unlink()
    (run / "lock").touch()
    shutil.copy(run / "evidence.json", run / "second-evidence.json")
    status, said = signer.verify(run / "evidence.json")
    assert (status, "second-evidence.json: is other evidence" in said) == (0, True)


@pytest.mark.slow
@pytest.mark.figures
def test_figures_are_made_again_too_and_what_is_not_is_counted(
    fedsim: Fedsim, signer: Signer, experiment: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    assert fedsim("run", experiment, "--out", run, "--quiet")[0] == 0
    signer.sign(run)
    status, said = signer.verify(run / "evidence.json")
    files = [path for path in run.rglob("*") if path.is_file() and path.name != "lock"]
    drawn = len([*(run / "figures").iterdir()])
    assert (status, drawn > 3) == (0, True)
    assert f"derived again, with the same words and numbers: report.html, {drawn} figures" in said
    # Beside report, page and evidence: configuration, ledger, facts, events, transcript, batches.
    rest = len(files) - 3 - drawn
    assert f"{rest} other files, accepted as signed and not derived again" in said
    figure = run / "figures" / "advantage.svg"
    figure.write_text(figure.read_text().replace("</svg>", f"<text>{PROVEN}</text></svg>"))
    (run / "evidence.json").unlink()
    status, _, said = signer.fedsim("sign", run, "--key", signer.private)
    assert (status, "figures/advantage.svg differs from what fedsim derives" in said) == (2, True)


@pytest.mark.parametrize(
    ("told", "same"),
    [
        ("advantage 0.251 of 400 trials, 1.24e-05", True),  # rounded otherwise
        ("advantage 0.253 of 400 trials, 1.23e-05", False),
        ("advantage 0.250 of 401 trials, 1.23e-05", False),
        ("advantage 0.250 of 400 runs, 1.23e-05", False),
        ("advantage 0.250 of 400 trials, 1.23e-05, 3", False),
    ],
)
def test_pages_may_differ_in_the_last_digit_of_a_number_alone(told: str, same: bool) -> None:
    assert derivation.alike(told.encode(), b"advantage 0.250 of 400 trials, 1.23e-05") is same


def test_a_report_made_anew_at_another_confidence_follows_from_its_files(
    fedsim: Fedsim, signer: Signer, run: Path
) -> None:
    limits = "--confidence", ".9", "--delta", "1e-4", "--limit-belief", ".8"
    assert fedsim("report", run, *limits)[0] == 0
    status, said = signer.verify(run / "evidence.json")
    assert (status, "report.json: is not the file" in said) == (4, True)
    (run / "evidence.json").unlink()
    signer.sign(run)
    assert signer.verify(run / "evidence.json")[0] == 0


def test_a_training_is_signed_with_its_model(
    fedsim: Fedsim, signer: Signer, small: Callable[..., Config], tmp_path: Path
) -> None:
    path, out = tmp_path / "training.toml", tmp_path / "model"
    path.write_text(dump(small({"privacy.noise-source": "system"})))
    assert fedsim("train", path, "--out", out, "--quiet", "--fail-if", "epsilon > 50")[0] == 0
    assert fedsim("report", out, "--fail-if", "epsilon < 50")[0] == 3
    signer.sign(out)
    status, said = signer.verify(out / "evidence.json")
    assert (status, "words and numbers: report.html, public/MODEL_CARD.md" in said) == (0, True)
    model = out / "public" / "model.safetensors"
    model.write_bytes(model.read_bytes()[:-1] + b"x")
    status, said = signer.verify(out / "evidence.json")
    assert (status, "public/model.safetensors: is not the file" in said) == (4, True)


def test_the_audit_of_a_transcript_is_signed_with_it(
    fedsim: Fedsim, signer: Signer, tmp_path: Path
) -> None:
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
    with pytest.raises(InputError, match="fedsim audit transcript"):
        statement.located(path)
    claim = "--claimed-epsilon", "10", "--claimed-delta", "1e-5"
    status, _, said = fedsim("audit", "transcript", path, *claim, "--fail-if", "epsilon.low > 1")
    assert (status, "Gate shut: epsilon.low > 1" in said) == (3, True)
    signer.sign(tmp_path / "server-audit")  # with its transcript, which lies beside it
    evidence = tmp_path / "server-evidence.json"
    status, said = signer.verify(evidence)
    assert (status, "absent: configuration, ledger: not signed" in said) == (0, True)
    assert "derived again, with the same words and numbers: report.html" in said
    apart = tmp_path / "apart"
    shutil.copytree(tmp_path / "server-audit", apart)
    signer.sign(apart)
    status, said = signer.verify(apart / "evidence.json")
    assert (status, "report: was not derived again: its transcript is not among" in said) == (
        3,
        True,
    )
    path.write_bytes(path.read_bytes() + b"\0")
    status, said = signer.verify(evidence)
    assert (status, "server.fedt: is not the file" in said) == (4, True)


def test_what_takes_the_clients_data_to_be_audited_again_is_not_verified_but_its_files_are(
    signer: Signer, tmp_path: Path
) -> None:
    (tmp_path / "live.fedt").write_bytes(b"what an auditor's node recorded")
    (tmp_path / "live-audit").mkdir()
    report = {"kind": "live audit", "claim": None, "belief": {"highest": 0.7}}
    (tmp_path / "live-audit" / "report.json").write_text(json.dumps(report))
    signer.sign(tmp_path / "live.fedt")
    status, said = signer.verify(tmp_path / "live-evidence.json")
    assert (status, "files: 2 of 2" in said, "needs the clients' data" in said) == (3, True, True)


APPS = Path(__file__).parents[2] / "apps"
QUICK = "--trials", "20", "--claimed-epsilon", "3", "--claimed-delta", "1e-5"
OF_APP = "app", APPS / "dp_app", *QUICK, "--clients", "2", "--rounds", "1"
OF_LOOP = "loop", f"{APPS / 'loops' / 'own_loops.py'}:correct", *QUICK, "--records", "16"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("asked", "code"),
    [
        ((*OF_APP, "--run-config", "clients=2"), "dp_app/client_app.py"),
        pytest.param(OF_LOOP, "own_loops.py", marks=pytest.mark.long),
    ],
)
def test_an_audit_of_code_passes_a_gate_and_is_verified_elsewhere_by_a_process_of_its_own(
    fedsim: Fedsim, signer: Signer, tmp_path: Path, asked: tuple[object, ...], code: str
) -> None:
    out, there = tmp_path / "audit", tmp_path / "elsewhere" / "audit"
    status, _, said = fedsim("audit", *asked, "--out", out, "--fail-if", "epsilon.low > 3")
    assert (status, "Gate shut" in said) == (0 if code.startswith("dp_app") else 3, False)
    report = json.loads((out / "report.json").read_text())
    source = APPS / ("dp_app" if code.startswith("dp_app") else "loops") / code
    assert report["code"][code] == hashlib.sha256(source.read_bytes()).hexdigest()
    signer.sign(out)
    shutil.copytree(out, there)
    public = shutil.copy(signer.public, tmp_path / "elsewhere")
    shutil.rmtree(out)
    verify = [sys.executable, "-m", "fedsim", "verify", "audit/evidence.json", "--key", public]
    fresh = {"PATH": os.environ["PATH"], "HOME": str(tmp_path / "home")}
    fresh["PYTHONPATH"] = str(Path(statement.__file__).parents[3])
    for more, status in (([], 3), (["--as-signed"], 0)):
        where = {"cwd": there.parent, "env": fresh}
        found = subprocess.run([*verify, *more], check=False, capture_output=True, **where)
        assert found.returncode == status, found.stderr
        assert b"absent: configuration, ledger, transcript: not signed" in found.stdout


def test_an_audit_of_code_says_what_is_absent_and_names_one_changed_byte(
    fedsim: Fedsim, signer: Signer, tmp_path: Path
) -> None:
    for kind in ("app audit", "loop audit"):
        out = tmp_path / kind
        out.mkdir()
        report = {"kind": kind, "verdict": "supported", "seed": 4, "theory": {"epsilon": 1.5}}
        (out / "report.json").write_text(json.dumps(report))
        (out / "report.html").write_text("<p>1.5</p>")
        status, _, said = fedsim("sign", out, "--key", signer.private)
        assert (status, "not that the report follows from them" in said) == (0, True)
        status, said = signer.verify(out / "evidence.json")
        assert (status, "keeps no trials" in said) == (3, True)
        assert re.search("noted +absent: configuration", said)
        status, said, _ = fedsim(*(as_signed := (
            "verify", out / "evidence.json", "--key", signer.public, "--as-signed"
        )))  # fmt: skip
        assert (status, said.split(",")[0]) == (0, "Files as signed; the report was not made again")
        status, said, _ = fedsim(*as_signed, "--json")
        told = json.loads(said)["statement"]["predicate"]
        assert (status, told["absent"]) == (0, ["configuration", "ledger", "transcript"])
        assert (told["seeds"], told["numbers"]["epsilon"]) == ({"audit.seed": 4}, 1.5)
        assert told["conclusions"] == {"verdict": "supported"}
        (out / "report.html").write_text("<p>1.4</p>")
        status, said, _ = fedsim(*as_signed)
        assert (status, "report.html" in said) == (4, True)
    (tmp_path / "app audit" / "report.json").write_text('{"kind": "app audit"}')
    (tmp_path / "app audit" / "evidence.json").unlink()
    status, _, said = fedsim("sign", tmp_path / "app audit", "--key", signer.private)
    assert (status, "report.json is damaged: it has no 'seed'" in said) == (2, True)
    (tmp_path / "app audit" / "report.json").write_text('{"kind": "sweep"}')
    status, _, said = fedsim("sign", tmp_path / "app audit", "--key", signer.private)
    assert (status, "reports a sweep, which is neither a run nor an audit" in said) == (2, True)


def test_evidence_that_was_signed_before_it_said_what_is_absent_is_verified(
    signer: Signer, run: Path
) -> None:
    told = json.loads(base64.b64decode(json.loads((run / "evidence.json").read_text())["payload"]))
    del told["predicate"]["absent"]
    before = envelope.Statement.model_validate(told)
    sealed = envelope.seal(before, envelope.read_private(signer.private))
    payload = base64.b64decode(json.loads(sealed)["payload"])
    assert b'"absent"' not in payload
    (run / "evidence.json").write_bytes(sealed)
    assert signer.verify(run / "evidence.json")[0] == 0


def test_keys_of_openssh_sign_and_a_directory_stands_for_its_evidence(
    fedsim: Fedsim, experiment: Path, tmp_path: Path
) -> None:
    private = Ed25519PrivateKey.generate()
    openssh = private.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
    (tmp_path / "id_ed25519").write_bytes(openssh)
    (tmp_path / "id_ed25519").chmod(0o600)
    public = private.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    (tmp_path / "id_ed25519.pub").write_bytes(public + b" officer@hospital\n")
    run = tmp_path / "run"
    assert fedsim("run", experiment, "--out", run, "--quiet")[0] == 0
    refused = fedsim("verify", run)
    assert (refused[0], "holds 0 files" in refused[2]) == (2, True)
    assert fedsim("sign", run, "--key", tmp_path / "id_ed25519")[0] == 0
    assert fedsim("verify", run, "--key", tmp_path / "id_ed25519.pub")[0] == 0


def test_keys_and_evidence_replace_nothing_and_keys_are_for_their_owner(
    fedsim: Fedsim, signer: Signer, run: Path, tmp_path: Path
) -> None:
    assert signer.private.stat().st_mode & 0o777 == 0o600
    before = signer.private.read_bytes()
    assert fedsim("sign", "--new-key", signer.private)[0] == 2
    assert signer.private.read_bytes() == before
    (tmp_path / "victim").write_text("kept")
    (tmp_path / "link-evidence.json").symlink_to(tmp_path / "victim")
    for out in (run / "evidence.json", tmp_path / "link-evidence.json", run / "report.json"):
        status, _, said = fedsim("sign", run, "--key", signer.private, "--out", out)
        assert (status, said.count("\n")) == (2, 1)
    assert (tmp_path / "victim").read_text() == "kept"
    signer.private.chmod(0o640)
    status, _, said = fedsim(
        "sign", run, "--key", signer.private, "--out", tmp_path / "evidence.json"
    )
    assert (status, "chmod 600" in said) == (2, True)


def test_code_of_the_users_own_is_signed_and_looked_at_where_it_is_allowed(
    fedsim: Fedsim,
    signer: Signer,
    experiment: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv(registry.ALLOWED, "")
    code, run = tmp_path / "own_schedule.py", tmp_path / "run"
    code.write_text("def half(round, rounds, training):\n    return 0.5\n")
    allowed = "--allow-code", "own_schedule:half"
    named = "--set", "training.schedule=own_schedule:half"
    assert fedsim(*allowed, "run", experiment, *named, "--out", run, "--quiet")[0] == 0
    monkeypatch.setenv(registry.ALLOWED, "")
    status, _, said = fedsim("sign", run, "--key", signer.private)
    assert (status, "--allow-code own_schedule:half" in said) == (2, True)
    assert fedsim(*allowed, "sign", run, "--key", signer.private)[0] == 0
    status, said = signer.verify(run / "evidence.json")
    assert (status, "differs" in said) == (0, False)
    code.write_text("def half(round, rounds, training):\n    return 1.0\n")
    status, said = signer.verify(run / "evidence.json")
    assert (status, "differs from the signer's: code of own_schedule" in said) == (0, True)
