"""An auditor who holds nobody's texts tells a decoder that memorised planted ones."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("transformers", reason="texts need transformers")

from flwr.app import Context, RecordDict
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from torch import Tensor
from transformers import GPT2Config, GPT2LMHeadModel

from adversaries.errors import InputError
from adversaries.statistics import gaussian
from fedsim import client_app, server_app
from fedsim.audits.live import live_report
from fedsim.audits.live.live_audit import LiveAudit
from fedsim.audits.live.watches import TextWatch
from fedsim.cli.main import main
from fedsim.common import device
from fedsim.config import JOBS, Config, Scalar, from_run_config, to_run_config
from fedsim.federation.client import training_node
from fedsim.federation.runtimes.inprocess import InProcessGrid
from fedsim.federation.server.plan import prepare
from fedsim.federation.transcripts.reader import Reader
from fedsim.federation.transcripts.records import ObservedRound, TranscriptFacts
from fedsim.game import federation
from fedsim.game.canary import Canaries
from fedsim.learning.training import models
from fedsim.report.kinds import live as live_words

AUDITOR, SEED, COUNT, LENGTH, WORDS = 7777, 17, 200, 8, 30

Report = dict[str, Any]


@pytest.fixture(scope="module")
def decoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of a small untrained GPT-2 with a tokenizer of words."""
    place = tmp_path_factory.mktemp("gpt2")
    names = ["[PAD]", "[UNK]", *(f"w{word}" for word in range(WORDS))]
    tokenizer = Tokenizer(WordLevel({name: at for at, name in enumerate(names)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.save(str(place / "tokenizer.json"))
    torch.manual_seed(0)
    shape = {"n_embd": 32, "n_layer": 1, "n_head": 2, "n_positions": LENGTH}
    special = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 1}
    GPT2LMHeadModel(GPT2Config(vocab_size=len(names), **shape, **special)).save_pretrained(place)
    return place


def configured(decoder: Path, folder: Path, changes: dict[str, Scalar]) -> Config:
    """Return a training of the decoder on texts that all clients have in one file."""
    words = np.random.default_rng(0).integers(WORDS, size=(60, LENGTH))
    lines = [" ".join(f"w{word}" for word in row) for row in words.tolist()]
    (folder / "texts.txt").write_text("\n".join(lines) + "\n")
    values: dict[str, Scalar] = {
        "data.name": "texts",
        "data.root": str(folder / "texts.txt"),
        "data.length": LENGTH,
        "data.records": 30,
        "data.held-out": 20,
        "federation.clients": 3,
        "federation.trust": "local",
        "model.name": "hugging-face",
        "model.task": "next-token",
        "model.weights": str(decoder),
        "privacy.rho-beta": 0.0,
        "privacy.noise-multiplier": 20.0,
        "privacy.delta": 1e-5,
        "run.threads": 1,
        "run.device": "cpu",
        "run.out": str(folder / "run"),
    }
    return from_run_config(JOBS["training"](values | changes))


def memorised(network: Any, start: Tensor, texts: Tensor) -> Tensor:
    """Return the parameters [P] after steps on texts alone, without noise."""
    device.single_threaded_kernels()
    optimizer = torch.optim.Adam(network.parameters(), 0.02)
    for name, value in models.unflatten(start, models.parameter_shapes(network)).items():
        network.get_parameter(name).data.copy_(value)
    for _ in range(60):
        optimizer.zero_grad()
        network(texts).mean().backward()
        optimizer.step()
    return models.flatten(network).detach()


def test_an_audit_tells_who_memorised_texts_from_who_never_saw_them(
    decoder: Path, tmp_path: Path
) -> None:
    """One round: a model fitted to the texts that are in, and one fitted to as many others."""
    config = configured(decoder, tmp_path, {"training.rounds": 1})
    planted, other = Canaries(SEED, COUNT, "text"), Canaries(SEED + 1, COUNT, "text")
    network = federation.network(config.model, (LENGTH,), 1)
    start = models.flatten(network).detach()

    def found(seen: Canaries) -> Report:
        tokens = seen.texts(WORDS + 2, 0, LENGTH)[torch.tensor(seen.coins(range(1))[0])]
        last = memorised(network, start, tokens)
        mechanism = {**to_run_config(config), "request.first-trial": 0, "request.record": 0}
        mechanism |= {"request.replacement": -1, "request.target-client": 0, "request.begun": 1}
        mechanism |= {"request.noise-multiplier": 20.0, "request.earlier": 0, "request.released": 0}
        audit = LiveAudit(planted=[planted], weights=str(decoder))
        noise = torch.randn(1, len(start), generator=torch.Generator().manual_seed(0)).numpy()
        before = ObservedRound(1, {"parameters": start[None].numpy()}, mechanism=mechanism)
        sent = {"parameters": last[None].numpy(), "sum": 20 * 3**0.5 * noise}
        audit.observe(before)
        audit.observe(ObservedRound(2, sent, mechanism=mechanism))
        return live_report.assemble(audit, TranscriptFacts("auditor", "auditor", "fedsim"), 0.95)

    knows, never = found(planted), found(other)
    inside, outside = knows.texts.fell
    assert inside > 1 > outside
    assert knows.texts.epsilon_at_least == pytest.approx(knows.texts.most)
    assert knows.texts.epsilon_at_least > 3
    # A text of norm C in one round of noise 20 C sqrt(3).
    allowed = gaussian.epsilon(1 / (20 * 3**0.5), 1e-5)
    assert knows.texts.allowed == pytest.approx(allowed)
    assert [alarm[:13] for alarm in knows.contradictions] == ["Planted texts"]
    assert never.texts.epsilon_at_least == 0
    assert never.contradictions == []
    assert "cannot tell" in live_words.verdict(never)
    assert "show that epsilon is at least" in live_words.verdict(knows)


def trained(config: Config, folder: Path, *nodes: dict[str, Scalar]) -> Path:
    """Train with an auditor and the first clients' node configs; return what the auditor wrote."""
    plan = prepare(config)
    directory, run_config = plan.begin(), to_run_config(plan.config)
    grid = InProcessGrid(client_app.app, config.federation.clients, run_config)
    for place, node in enumerate(nodes):
        grid.contexts[1000 + place].node_config.update(node)
    told: dict[str, Scalar] = {"role": "auditor", "transcript-path": str(folder / "seen")}
    grid.contexts[AUDITOR] = Context(
        run_id=1, node_id=AUDITOR, node_config=told, state=RecordDict(), run_config=run_config
    )
    for context in grid.contexts.values():
        context.run_id = 1
    server_app.carry_out(grid, plan, directory)
    return folder / "seen" / "1.fedt"


def audited(
    transcript: Path, capsys: pytest.CaptureFixture[str], seed: int, *options: object
) -> tuple[int, Report]:
    """Return the exit status and the report of an audit with the seed of texts."""
    seeds = transcript.parent / "seeds"
    seeds.write_text(f"{seed} {COUNT} text\n")
    given = ["audit", "live", transcript, "--once", "--json", "--canary-seed-file", seeds, *options]
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in [*given, "--out", transcript.parent / "audit"]])
    assert isinstance(ended.value.code, int)
    printed = capsys.readouterr()
    return ended.value.code, json.loads(printed.out.splitlines()[-1])


PLANTS: dict[str, Scalar] = {"canary-seed": SEED, "canary-count": COUNT, "canary-kind": "text"}
LEARNS: dict[str, Scalar] = {
    "training.rounds": 15,
    "training.learning-rate": 1.0,
    "training.momentum": 0.9,
}


@pytest.mark.slow
def test_a_federation_with_a_thousandth_of_its_noise_is_convicted_by_the_planted_texts_alone(
    decoder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The seed of texts that nobody planted tells nothing of the same transcript."""
    really: Callable[..., torch.Tensor] = training_node._noise
    monkeypatch.setattr(training_node, "_noise", lambda *given: 1e-3 * really(*given))
    transcript = trained(configured(decoder, tmp_path, LEARNS), tmp_path, PLANTS)
    claim = ("--claimed-epsilon", 99, "--claimed-delta", 1e-5, "--weights", decoder)
    status, report = audited(transcript, capsys, SEED, *claim)
    assert status == 4
    assert any("Planted texts" in alarm for alarm in report["contradictions"])
    assert report["texts"]["since"] == 1
    lines = (tmp_path / "seen" / "audit" / "beliefs.jsonl").read_text().splitlines()
    proven = [json.loads(line)["texts"]["epsilon_at_least"] for line in lines]
    assert proven[0] < 1 < proven[-1]
    assert report["texts"]["allowed"] < 0.5
    page = (tmp_path / "seen" / "audit" / "report.html").read_text()
    assert "200 planted texts show that epsilon is at least" in page
    _, report = audited(transcript, capsys, SEED + 1, *claim)
    assert report["texts"]["epsilon_at_least"] == 0
    assert not any("Planted texts" in alarm for alarm in report["contradictions"])


@pytest.mark.slow
def test_honest_noise_hides_the_texts_and_they_support_no_claim(
    decoder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An auditor that joins late says that it cannot see what the model had learnt by then."""
    changes: dict[str, Scalar] = {"training.rounds": 3, "training.learning-rate": 1.0}
    config = configured(decoder, tmp_path, LEARNS | changes)
    transcript = trained(config, tmp_path, PLANTS)
    _, report = audited(transcript, capsys, SEED, "--weights", decoder)
    assert (report["texts"]["epsilon_at_least"], report["alarms"]) == (0, 0)
    page = (tmp_path / "seen" / "audit" / "report.html").read_text()
    assert "the auditor cannot tell whether the model knows them" in page
    audit = LiveAudit(planted=[Canaries(SEED, COUNT, "text")], weights=str(decoder))
    with Reader(transcript) as reader:
        for observed in list(reader.rounds())[1:]:
            audit.observe(observed)
    late = live_report.assemble(audit, TranscriptFacts("auditor", "auditor", "fedsim"), 0.95)
    assert (late.texts.since, late.missed) == (2, 1)
    assert late.texts.allowed == pytest.approx(report["texts"]["allowed"])
    assert "first saw the model before round 2" in live_words.verdict(late)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (f"{SEED} 4 text", "with --weights"),
        (f"{SEED} 4 texts", "canary-kind is 'texts'; it must be direction or text"),
        (f"{SEED} 0 text", "canary-count is 0"),
    ],
)
def test_what_an_audit_of_texts_lacks_is_one_line(
    line: str, said: str, decoder: Path, tmp_path: Path
) -> None:
    config = configured(decoder, tmp_path, {"training.rounds": 1})
    (tmp_path / "seeds").write_text(line)
    with pytest.raises(InputError, match=said) as refused:
        watching(live_report._planted(tmp_path / "seeds"), config.starting_from(""))
    assert "\n" not in str(refused.value)


def test_texts_are_planted_in_a_decoder_alone() -> None:
    with pytest.raises(InputError, match=r"need a decoder, but the run's model\.task is"):
        watching([Canaries(SEED, COUNT, "text")], from_run_config({}))


def watching(planted: list[Canaries], config: Config) -> TextWatch:
    return TextWatch(planted, config.data, config.model, config.run)
