"""What a small decoder learns of private texts, and what canaries in them prove.

Texts are words of which each tells the next with probability .8. A GPT-2 of two layers learns from
public texts, in which half of the words are followed by another than in the private ones.
"""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from tables import Table
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import GPT2Config, GPT2LMHeadModel

import fedsim
from fedsim.configuration import Scalar, from_run_config
from fedsim.game import federation
from fedsim.learning.training.tasks import task_of

WORDS, LENGTH, TOLD = 60, 16, 0.8
RECORDS, HELD_OUT = 1000, 400
STEPS = 400
"""Of Adam, on public texts."""

RATE = {"training.learning-rate": 1.0}
START: dict[str, dict[str, Scalar]] = {
    "all, by the default optimiser": {},
    "all, by SGD at rate 1": RATE,
    "adapters of rank 4, by SGD at rate 1": RATE | {"model.lora-rank": 4},
}
"""What of the public network is trained, and how."""


def texts(count: int, seed: int, private: bool) -> str:
    """Return so many texts, one a line."""
    random, lines = np.random.default_rng(seed), []
    follower = np.random.default_rng(0).permutation(WORDS)
    if private:  # half of the words are followed by another
        changed = np.arange(0, WORDS, 2)
        follower[changed] = np.roll(follower[changed], 1)
    for _ in range(count):
        words = [int(random.integers(WORDS))]
        for _ in range(random.integers(LENGTH // 2, LENGTH)):
            told = random.random() < TOLD
            words.append(int(follower[words[-1]] if told else random.integers(WORDS)))
        lines.append(" ".join(f"w{word}" for word in words))
    return "\n".join(lines) + "\n"


def best() -> float:
    """Return the perplexity of a model that knows how private texts are made."""
    likely, other = TOLD + (1 - TOLD) / WORDS, (1 - TOLD) / WORDS
    return math.exp(-likely * math.log(likely) - (WORDS - 1) * other * math.log(other))


def network(place: Path, steps: int) -> None:
    """Write a GPT-2 that has learnt from public texts."""
    place.mkdir()
    names = ["[PAD]", "[UNK]", *(f"w{word}" for word in range(WORDS))]
    tokenizer = Tokenizer(WordLevel({name: at for at, name in enumerate(names)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.save(str(place / "tokenizer.json"))
    torch.manual_seed(0)
    shape = {"n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": LENGTH}
    shape |= {"bos_token_id": 1, "eos_token_id": 1}
    model = GPT2LMHeadModel(GPT2Config(vocab_size=len(names), pad_token_id=0, **shape))
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    tokenizer.enable_padding(length=LENGTH)
    rows = [each.ids for each in tokenizer.encode_batch(texts(2000, 1, False).splitlines())]
    whole = torch.tensor(rows)
    for step in range(steps):
        part = whole[torch.arange(64 * step, 64 * step + 64) % len(whole)]
        optimizer.zero_grad()
        targets = part.masked_fill(part == 0, -100)
        model(input_ids=part, attention_mask=(part != 0).long(), labels=targets).loss.backward()
        optimizer.step()
    model.save_pretrained(place)


def measure(smoke: bool, data_root: Path | None) -> Iterator[Table]:
    """Yield what trainings cost in perplexity, and what canaries prove."""
    seeds, rounds, steps = (1, 2, 5) if smoke else (2, 30, STEPS)
    with TemporaryDirectory() as folder:
        place = Path(folder)
        network(place / "gpt2", steps)
        (place / "private.txt").write_text(texts(RECORDS + HELD_OUT, 2, True))
        common = {
            "data.name": "texts",
            "data.root": str(place / "private.txt"),
            "data.length": LENGTH,
            "data.records": RECORDS,
            "data.held-out": HELD_OUT,
            "federation.clients": 3,
            "model.name": "hugging-face",
            "model.task": "next-token",
            "model.weights": str(place / "gpt2"),
            "training.rounds": rounds,
            "privacy.rho-beta": 0.0,
            "privacy.delta": 1e-5,
        }
        yield _learning(common, place, seeds, (8.0,) if smoke else (1.0, 8.0))


def _learning(
    common: dict[str, Scalar], place: Path, seeds: int, epsilons: tuple[float, ...]
) -> Table:
    config = from_run_config({**common, "privacy.epsilon": 1.0})
    known = federation.load(config)
    theta = federation.initial_parameters(config, known, range(1))
    losses, _ = known.evaluate(theta, *known.held_out())
    first = task_of(known.model).mean(known.model, losses, known.held_out()[0])
    unigram = known.baseline["baseline_loss"]
    rows = [
        ("unigram model of the held-out texts", "", math.exp(unigram), None),
        ("the public network as it is", "", math.exp(float(first)), None),
    ]
    for epsilon in epsilons:
        for name, changes in START.items():
            found = []
            for seed in range(seeds):
                out = place / f"{epsilon:g} {name} {seed}"
                own = {"privacy.epsilon": epsilon, "run.seed": seed, "run.out": str(out)}
                fedsim.train({**common, **changes, **own}, progress=False)
                card = json.loads((out / "public" / "model_card.json").read_text())
                found.append(math.exp(card["utility"]["loss"]))
            spread = float(np.std(found, ddof=1)) if seeds > 1 else None
            rows.append((name, f"{epsilon:g}", float(np.mean(found)), spread))
    rows.append(("the law of the texts, the least there can be", "", best(), None))
    note = f"{RECORDS} texts, {HELD_OUT} held out, δ = 1e-05, {seeds} trainings each."
    return Table("Perplexity", ("what is trained", "ε", "perplexity", "its spread"), rows, note)
