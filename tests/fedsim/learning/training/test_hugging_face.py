"""A classifier of texts from a local Hugging Face directory is trained on clients' own texts."""

import csv
import json

import numpy as np
import pytest
import torch

pytest.importorskip("transformers", reason="texts need transformers")

from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing
from torch.nn.functional import cross_entropy
from transformers import AutoModelForSequenceClassification, BertConfig, BertModel

import fedsim
from adversaries.errors import InputError
from fedsim.configuration import JOBS, from_run_config, to_run_config
from fedsim.game import federation
from fedsim.learning.data import own_records, schema
from fedsim.learning.training import hugging_face, models, pretrained, saved_model

LENGTH = 12
SCHEMA = f"""
label = "mood"
classes = ["bad", "good"]

[text]
column = "review"
length = {LENGTH}
"""
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
GOOD, BAD = ["fine", "warm", "kind"], ["cold", "rude", "late"]
FILLERS = ["the", "train", "food", "was", "and", "a", "place", "they"]


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    """A directory as save_pretrained writes it, of a small untrained BERT without a classifier."""
    place = tmp_path_factory.mktemp("bert")
    words = {word: number for number, word in enumerate(SPECIAL + GOOD + BAD + FILLERS)}
    tokenizer = Tokenizer(WordLevel(words, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    tokenizer.save(str(place / "tokenizer.json"))
    torch.manual_seed(0)
    BertModel(
        BertConfig(
            vocab_size=len(words),
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=64,
            max_position_embeddings=16,
        )
    ).save_pretrained(place)
    return place


@pytest.fixture
def texts(tmp_path, small, directory):
    """A training on reviews, each client's in a file of its own."""
    random = np.random.default_rng(3)
    for name, count in (("0", 30), ("1", 20), ("2", 10), ("public", 60)):
        with (tmp_path / f"{name}.csv").open("w", newline="") as file:
            written = csv.writer(file)
            written.writerow(["review", "mood"])
            for _ in range(count):
                mood = random.integers(2)
                words = [*random.choice(FILLERS, 4), *random.choice([BAD, GOOD][mood], 2)]
                written.writerow([" ".join(random.permutation(words)), ["bad", "good"][mood]])
    values = to_run_config(small({"privacy.noise-source": "seed", "federation.trust": "local"}))
    return from_run_config(
        JOBS["training"](
            values
            | {
                "data.name": "own",
                "data.root": str(tmp_path / "{client}.csv"),
                "data.public-schema": SCHEMA,
                "data.public-root": str(tmp_path / "public.csv"),
                "data.records": 60,
                "data.held-out": 60,
                "model.name": "hugging-face",
                "model.weights": str(directory),
                "model.weights-sha256": pretrained.digest(str(directory)),
                "run.out": str(tmp_path / "trained"),
            }
        )
    )


def test_texts_become_tokens_that_are_cut_and_padded(directory, tmp_path):
    path = tmp_path / "some.csv"
    path.write_text("mood,review\ngood,the food was warm\nbad,late\nbad," + "rude " * 20 + "\n")
    agreed = schema.parse(SCHEMA)
    found = own_records.records(str(path), agreed, directory=str(directory))
    assert found.labels.tolist() == [1, 0, 0]
    assert found.features[0].tolist() == [2, 10, 12, 13, 5, 3, 0, 0, 0, 0, 0, 0]
    assert found.features[1].tolist() == [2, 9, 3] + [0] * 9
    assert found.features[2].tolist() == [2] + [8] * 10 + [3]
    path.write_text("mood,review\ngood,\n")
    with pytest.raises(InputError, match=r"record 1 of .* has no text in the column 'review'"):
        own_records.records(str(path), agreed, directory=str(directory))
    path.write_text("mood,review\ngood,kind\n")
    with pytest.raises(InputError, match=r"set model\.weights to that directory"):
        own_records.records(str(path), agreed)


@pytest.mark.parametrize(
    "tuning", [{}, {"model.lora-rank": 2, "model.trainable": "classifier"}], ids=["all", "adapters"]
)
def test_each_records_gradient_is_clipped_by_itself(texts, tuning):
    config = from_run_config(to_run_config(texts) | tuning)
    known = federation.load(config, 0)
    theta = federation.initial_parameters(config, known, range(1))
    features, labels = known.members(known.owned_by(0))
    found = known.clipper.clipped_sum(theta, features, labels)[0]
    shapes = models.parameter_shapes(known.model)
    expected = torch.zeros(theta.shape[1], dtype=torch.float64)
    for x, y in zip(features, labels, strict=True):
        named = {
            name: value[0].detach().requires_grad_()
            for name, value in models.unflatten(theta, shapes).items()
        }
        loss = cross_entropy(torch.func.functional_call(known.model, named, (x[None],)), y[None])
        parts = torch.autograd.grad(loss, list(named.values()))
        gradient = torch.cat([part.flatten() for part in parts]).double()
        expected += gradient * min(1.0, config.training.clipping_norm / float(gradient.norm()))
    torch.testing.assert_close(found.double(), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "tuning", [{}, {"model.lora-rank": 2, "model.trainable": "classifier"}], ids=["all", "adapters"]
)
def test_a_texts_absence_changes_no_other_texts_gradient(texts, tuning):
    real = {"privacy.noise-source": "system"}
    known = federation.load(from_run_config(to_run_config(texts) | tuning | real), 0)
    features, labels = known.members(known.owned_by(0))
    assert known.fallbacks() == {}
    features, labels = features.repeat(4, 1), labels.repeat(4)
    size = models.size(known.model)
    for seed in range(0, 4, 3):
        torch.manual_seed(seed)
        hostile = 10.0**seed * torch.randn(1, size)
        whole = known.clipper.clipped_sum(hostile, features, labels)
        for absent in range(0, len(labels), 20):
            others = torch.arange(len(labels)) != absent
            without = known.clipper.clipped_sum(hostile, features[others], labels[others])
            assert float((whole - without).norm()) <= known.clipper.clipping_norm * 1.001


@pytest.mark.slow
def test_the_model_that_is_kept_is_transformers_own(texts, tmp_path):
    public = fedsim.train(texts).path / "public"
    rows = own_records.records(
        str(tmp_path / "public.csv"), schema.parse(SCHEMA), directory=str(public)
    )
    features = torch.tensor(rows.features)
    plain = AutoModelForSequenceClassification.from_pretrained(public).eval()
    with torch.no_grad():
        found = fedsim.load_model(public)(features)
        expected = plain(features.long(), attention_mask=(features != 0).long()).logits
    torch.testing.assert_close(found, expected)
    assert torch.equal(saved_model.read_features(public, str(tmp_path / "public.csv")), features)
    card = json.loads((public / "model_card.json").read_text())
    right = float((found.argmax(1) == torch.tensor(rows.labels)).float().mean())
    assert card["utility"]["accuracy"] == pytest.approx(right)
    first = AutoModelForSequenceClassification.from_pretrained(texts.model.weights)
    name = "bert.embeddings.word_embeddings.weight"
    assert not torch.equal(plain.get_parameter(name), first.get_parameter(name))


def test_one_digest_tells_network_and_tokenizer(directory, tmp_path):
    ours = pretrained.digest(str(directory))
    copy = tmp_path / "copy"
    copy.mkdir()
    for name in pretrained.FILES:
        (copy / name).write_bytes((directory / name).read_bytes())
    assert pretrained.digest(str(copy)) == ours
    (copy / "tokenizer.json").write_text((copy / "tokenizer.json").read_text() + " ")
    assert pretrained.digest(str(copy)) != ours
    (copy / "model.safetensors").unlink()
    with pytest.raises(InputError, match=r"model\.safetensors': No such file.*or a directory with"):
        pretrained.digest(str(copy))


def test_a_directory_that_does_not_fit_is_one_line(directory, tmp_path):
    with pytest.raises(InputError, match=r"records have 17 tokens, but .* takes 16"):
        hugging_face.build(str(directory), 17, 2)
    with pytest.raises(InputError, match=r"cannot read .*config\.json"):
        hugging_face.build(str(tmp_path), 12, 2)
    (tmp_path / "config.json").write_text((directory / "config.json").read_text())
    with pytest.raises(InputError, match=r"model\.safetensors. is not a safetensors file") as told:
        hugging_face.build(str(tmp_path), 12, 2)
    assert "\n" not in str(told.value)
