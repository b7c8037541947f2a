"""A decoder of texts from a local Hugging Face directory is trained to tell the next token."""

import json
import math
import re
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest
import torch

pytest.importorskip("transformers", reason="texts need transformers")

from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from torch.nn.functional import cross_entropy
from transformers import (
    AutoModelForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
)

import fedsim
from adversaries.errors import InputError
from fedsim.commands.main import main
from fedsim.configuration import JOBS, from_run_config, to_run_config
from fedsim.game import federation
from fedsim.learning.data import own_records, schema
from fedsim.learning.training import models, pretrained, regression_and_text, tasks
from fedsim.learning.training.clipping import Clipper
from fedsim.learning.training.layerwise import fallbacks

LENGTH, SIZE, PAD = 10, 17, 0
NAMES = ["[PAD]", "[UNK]", *(f"w{number}" for number in range(SIZE - 2))]
SCHEMA = f"""
[text]
length = {LENGTH}
"""


def saved(kind, place, tied=True):
    """Write a small untrained decoder as save_pretrained does, with a tokenizer of words."""
    place.mkdir(exist_ok=True)
    tokenizer = Tokenizer(WordLevel({word: at for at, word in enumerate(NAMES)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.save(str(place / "tokenizer.json"))
    torch.manual_seed(0)
    common = {"vocab_size": SIZE, "pad_token_id": PAD, "tie_word_embeddings": tied}
    if kind == "gpt2":
        GPT2LMHeadModel(
            GPT2Config(n_embd=16, n_layer=2, n_head=2, n_positions=LENGTH, **common)
        ).save_pretrained(place)
    else:
        LlamaForCausalLM(
            LlamaConfig(
                hidden_size=16,
                num_hidden_layers=2,
                num_attention_heads=2,
                num_key_value_heads=1,
                intermediate_size=24,
                max_position_embeddings=LENGTH,
                **common,
            )
        ).save_pretrained(place)
    return str(place)


def texts(count=6):
    """Return texts of several lengths, padded behind."""
    random = np.random.default_rng(1)
    found = random.integers(1, SIZE, (count, LENGTH))
    for row, length in enumerate(random.integers(2, LENGTH + 1, count)):
        found[row, length:] = PAD
    return torch.tensor(found, dtype=torch.float32)


def built(directory, rank=0):
    keys = {"weights": directory, "lora_rank": rank, "task": "next-token"}
    return models.build("hugging-face", (LENGTH,), 1, **keys)


def plain_loss(network, text):
    """Return what transformers itself makes of one text without its padding, in its precision."""
    tokens = text[text != PAD].long()[None]
    logits = network(input_ids=tokens).logits
    return cross_entropy(logits[0, :-1], tokens[0, 1:])


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_the_loss_is_transformers_own_and_padding_counts_for_nothing(kind, tmp_path):
    directory = saved(kind, tmp_path)
    network, rows = built(directory), texts()
    plain = AutoModelForCausalLM.from_pretrained(directory).eval()
    with torch.no_grad():
        found = network(rows)
        expected = torch.stack([plain_loss(plain, row) for row in rows])
    torch.testing.assert_close(found[:, 0], expected)
    task = tasks.TASKS["next-token"]
    assert isinstance(task, regression_and_text.NextToken)
    assert tasks.task_of(network) is task
    weights = task.weights(network, rows)
    assert weights.tolist() == [int((row != PAD).sum()) - 1 for row in rows]
    mean = float(task.mean(network, found[None, :, 0], rows))
    assert mean == pytest.approx(float(expected.double() @ weights / weights.sum()), rel=1e-6)


@pytest.mark.parametrize(
    ("kind", "tied", "rank"),
    [
        ("gpt2", True, 0),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in [
                ("gpt2", False, 0),
                ("llama", True, 0),
                ("gpt2", True, 2),
                ("llama", True, 2),
            ]
        ),
    ],
)
def test_a_texts_gradient_is_that_of_autograd_with_tied_weights_counted_once(
    kind, tied, rank, tmp_path
):
    """In float64, text by text: the tied table's gradient is the sum of both of its uses."""
    network = built(saved(kind, tmp_path, tied), rank)
    names, rows = models.parameter_shapes(network), texts()
    tables = [name for name in names if "wte" in name or "embed_tokens" in name]
    assert (len(tables) == 1) == (rank == 0)
    theta = models.flatten(network)[None]
    stream = torch.Generator().manual_seed(3)
    theta = theta + 0.02 * torch.randn(2, theta.shape[1], generator=stream)
    labels = torch.zeros(len(rows), dtype=torch.int64)
    norm = 0.15 if rank else 0.7
    clipper = Clipper(network, norm)
    assert "" not in fallbacks(network, rows[0])
    found = clipper.clipped_sum(theta, rows, labels)
    exact = Clipper(network, norm, exact=True).clipped_sum(theta, rows, labels)
    lengths = Clipper(network, 1e9).clipped_gradients(theta, rows, labels).norm(dim=2)
    double = built(str(tmp_path), rank).double()
    expected = torch.zeros(found.shape, dtype=torch.float64)
    norms = torch.zeros(2, len(rows), dtype=torch.float64)
    for trial in range(2):
        values = models.unflatten(theta[trial].double(), names)
        for name, value in values.items():
            double.get_parameter(name).data.copy_(value)
        for place, row in enumerate(rows):
            double.zero_grad()
            own = [p for p in double.parameters() if p.requires_grad]
            parts = torch.autograd.grad(plain_loss(double_plain(double), row), own)
            gradient = torch.cat([part.flatten() for part in parts])
            norms[trial, place] = gradient.norm()
            expected[trial] += gradient * min(1.0, norm / float(gradient.norm()))
    assert (norms > norm).any()
    torch.testing.assert_close(lengths, norms, rtol=1e-4, atol=1e-6)
    for each in (found, exact):
        torch.testing.assert_close(each, expected, rtol=1e-3, atol=1e-4)


def double_plain(network):
    """Return the decoder's own forward pass, beneath that of the task."""
    return lambda **given: super(type(network).__mro__[1], network).forward(**given)


def lines(count, seed):
    """Return texts in which a word tells the next but for one time in ten."""
    random, found = np.random.default_rng(seed), []
    for _ in range(count):
        words = [int(random.integers(15))]
        for _ in range(random.integers(4, LENGTH)):
            told = random.random() < 0.9
            words.append((words[-1] * 3 + 1) % 15 if told else int(random.integers(15)))
        found.append(" ".join(f"w{word}" for word in words))
    return "\n".join(found) + "\n"


@pytest.fixture
def training(tmp_path, small):
    """A training on texts, each client's in a file of its own with one a line."""
    directory = saved("gpt2", tmp_path / "gpt2")
    for seed, (name, count) in enumerate([("0", 30), ("1", 20), ("2", 10), ("public", 60)]):
        (tmp_path / f"{name}.txt").write_text(lines(count, seed))
    values = to_run_config(small({"privacy.noise-source": "seed", "federation.trust": "local"}))
    return from_run_config(
        JOBS["training"](
            values
            | {
                "data.name": "own",
                "data.root": str(tmp_path / "{client}.txt"),
                "data.public-schema": SCHEMA,
                "data.public-root": str(tmp_path / "public.txt"),
                "data.records": 60,
                "data.held-out": 60,
                "model.name": "hugging-face",
                "model.task": "next-token",
                "model.weights": directory,
                "model.weights-sha256": pretrained.digest(directory),
                "run.out": str(tmp_path / "trained"),
            }
        )
    )


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 2])
def test_the_model_that_is_kept_is_transformers_own(training, rank, tmp_path, capsys):
    config = from_run_config(to_run_config(training) | {"model.lora-rank": rank})
    public = fedsim.train(config).path / "public"
    said = (public / "MODEL_CARD.md").read_text()
    assert "predicts the next token of a text. " in said
    assert re.search(r"Perplexity is [\d.]+ on .* \(95% interval .*, unigram baseline [\d.]+", said)
    path = str(tmp_path / "public.txt")
    rows = own_records.records(path, schema.parse(SCHEMA), directory=str(public))
    plain = AutoModelForCausalLM.from_pretrained(public).eval()
    with torch.no_grad():
        losses = torch.stack([plain_loss(plain, row) for row in torch.tensor(rows.features)])
    counts = torch.tensor((rows.features != PAD).sum(1) - 1)
    found = fedsim.predict(public, path).details
    np.testing.assert_array_equal(found.tokens, counts)
    np.testing.assert_allclose(found.perplexities, losses.double().exp(), rtol=1e-4)
    np.testing.assert_allclose(found.log_likelihoods, -losses.double() * counts, rtol=1e-4)
    card = json.loads((public / "model_card.json").read_text())
    mean = float(losses.double() @ counts.double() / counts.sum())
    assert card["utility"]["loss"] == pytest.approx(mean, rel=1e-5)
    low, high = card["utility"]["loss_interval"]
    assert low < mean < high
    assert ("not shown to have learnt" in said) == (high >= card["utility"]["baseline_loss"])
    with pytest.raises(SystemExit, match="0"):
        main(["predict", str(public), path])
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == "tokens,log-likelihood,perplexity"
    assert len(printed) == 61


@pytest.mark.slow
def test_a_model_of_a_file_of_texts_predicts_another_file(game, tmp_path):
    values = to_run_config(game) | {"run.job": "training", "canaries.count": 0}
    public = fedsim.train(from_run_config(JOBS["training"](values))).path / "public"
    assert len(fedsim.predict(public, tmp_path / "0.txt").details.tokens) == 30
    (tmp_path / "blank.txt").write_text("\n\n")
    with pytest.raises(InputError, match="has no text; give one text a line"):
        fedsim.predict(public, tmp_path / "blank.txt")


@pytest.mark.slow
def test_the_game_is_played_on_texts(game):
    config = game
    run = fedsim.run(config)
    report = run.details
    assert report.details.utility.measured.task == "next-token"
    texts = own_targets(config)
    losses = [loss for at in range(len(texts)) for loss in unigram_losses(texts, at)]
    assert report.details.utility.measured.baseline_loss == pytest.approx(np.mean(losses))
    assert report.attack.advantage is not None
    assert report.details.one_run is not None


@pytest.fixture
def game(training, tmp_path):
    """Return the rehearsal's game on texts that all have in one file, with canaries."""
    (tmp_path / "all.txt").write_text(lines(200, 9))
    values = to_run_config(training) | {
        "run.job": "experiment",
        "run.out": str(tmp_path / "game"),
        "data.name": "texts",
        "data.root": str(tmp_path / "all.txt"),
        "data.length": LENGTH,
        "data.public-schema": "",
        "data.public-root": "",
        "trials.count": 8,
        "trials.batch": 8,
        "canaries.count": 40,
    }
    return from_run_config(values)


def own_targets(config):
    """Return the tokens that are predicted of each text held out."""
    features = federation.load(config).held_out()[0][:, 1:].long()
    return [text[text != PAD].tolist() for text in features]


def unigram_losses(texts, at):
    """Return the losses of a text's tokens under the others' counts (method C of Witten, Bell)."""
    others = Counter(token for text in [*texts[:at], *texts[at + 1 :]] for token in text)
    assert others, "a single text has no others"
    new, total = len(others), sum(others.values())
    return [-math.log((others[token] + new / SIZE) / (total + new)) for token in texts[at]]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"model.task": "classification"}, "model.task is classification, but the records have no"),
        ({"data.public-schema": SCHEMA + 'column = "text"\n', "model.name": "mlp"}, "model.name"),
        ({"challenge.kind": "mislabelled", "run.job": "rehearsal"}, "texts without labels"),
    ],
)
def test_what_does_not_go_with_texts_is_one_line(training, change, said):
    with pytest.raises(InputError, match=said) as refused:
        federation.load(from_run_config(to_run_config(training) | change), 0)
    assert "\n" not in str(refused.value)


def test_the_interval_of_a_mean_over_tokens_holds_it_as_often_as_it_says():
    """Of 600 samples 95 % are 570, with a standard deviation of 5.3."""
    random = torch.Generator().manual_seed(0)
    weights = torch.randint(1, 20, (600, 80), generator=random).double()
    values = 2 + torch.randn(600, 80, generator=random).double() / weights.sqrt()
    intervals = [
        regression_and_text.ratio_interval(*each) for each in zip(values, weights, strict=True)
    ]
    held = sum(found is not None and found.low < 2 < found.high for found in intervals)
    assert 545 < held < 590


def test_the_unigram_baseline_is_fitted_elsewhere_than_it_is_measured():
    """Fitted to 20 texts themselves, it would seem nearly twice as good as on fresh ones."""
    random, model = np.random.default_rng(0), torch.nn.Module()
    words = SimpleNamespace(vocab_size=200, pad_token_id=0)
    model.config = words
    shares = random.dirichlet(np.full(199, 0.5))
    texts = 1 + random.choice(199, size=(420, 11), p=shares)
    few, fresh = torch.tensor(texts[:20]), torch.tensor(texts[20:, 1:])
    baseline = regression_and_text.NextToken().baseline(model, few, torch.zeros(20)).loss
    counts = np.bincount(texts[:20, 1:].ravel(), minlength=200)
    kinds = (counts > 0).sum()
    elsewhere = np.log((counts + kinds / 200) / (counts.sum() + kinds))
    within = counts[counts > 0] / counts.sum()
    assert baseline is not None
    assert baseline == pytest.approx(-float(elsewhere[fresh.numpy()].mean()), rel=0.05)
    assert baseline > 1.1 * -(within * np.log(within)).sum()
