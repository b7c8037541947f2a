"""A card shows the names that others gave; they are no headings, and no HTML, of its own."""

from contextlib import nullcontext
from dataclasses import replace

import pytest
from pydantic import TypeAdapter

from adversaries.errors import InputError
from fedsim.federation.runs.run_directory import CARD as CARD_FILE
from fedsim.federation.runs.run_directory import RunDirectory
from fedsim.reports import model_card
from fedsim.reports.document import worth
from fedsim.reports.document.worth import ModelUtility
from fedsim.reports.model_card import ModelCard, Privacy, ReleasedTowards

PRIVACY = Privacy(
    guaranteed=True,
    note="",
    unit="record",
    neighbouring="add-remove",
    delta=1e-5,
    noise_multiplier=1.0,
    clipping_norm=1.0,
    sampling_rate=1.0,
    trust="Each client adds noise.",
    towards=[ReleasedTowards("server", "every message", {"pld": 8.0})],
    rounds_charged=3,
    attempts=1,
)
CARD = ModelCard(
    name="digits",
    purpose="Reads digits.",
    created="2026-01-01T00:00:00+00:00",
    fedsim="0.1.0",
    data="digits",
    records=24,
    clients=3,
    classes=10,
    network="mlp",
    parameters=650,
    rounds=3,
    optimizer="sgd",
    privacy=PRIVACY,
    utility=None,
    sha256="0" * 64,
    limits=[],
    task="classification",
    uncovered=[],
)
FORGED = "x\n# Privacy\n\n| towards | 0.01 |\n<script>alert(1)</script> [a](http://h) **b** `c`"


def test_a_name_is_neither_a_heading_nor_html():
    honest = model_card.as_markdown_page(CARD)
    for field in ("name", "purpose", "data", "network"):
        page = model_card.as_markdown_page(replace(CARD, **{field: FORGED}))
        assert "<script>" not in page
        assert "[a](" not in page
        assert len(_headings(page)) == len(_headings(honest))
        assert _rows(page) == _rows(honest)


def test_quoted_text_means_nothing_in_markdown():
    assert model_card.quoted("# *a*\n<b>") == r"\# \*a\* &lt;b&gt;"


MEASURED = ModelUtility(
    records=100,
    accuracy=0.9,
    loss=0.5,
    majority=0.5,
    balanced_accuracy=None,
    area_under_curve=None,
    clipped=0.001,
    loss_interval=(0.4, 0.6),
    baseline_loss=1.0,
    errors={"mean_absolute": (0.1, 0.05, 0.15)},
)


@pytest.mark.parametrize("task", ["classification", "next-token", "regression", "huber"])
def test_a_hint_names_a_command_only_where_it_does_the_task(task):
    said = " ".join(worth.learning(MEASURED, task))
    assert "longer than training.clipping-norm" in said
    assert "fedsim choose tries some" in said


def test_a_card_says_in_sentences_what_the_model_is():
    page = model_card.as_markdown_page(replace(CARD, network="linear", records=1200))
    assert "The model (linear, 650 trained parameters) predicts one of 10 classes. " in page
    assert "3 clients trained it together, on 1,200 records of digits, in 3 rounds (sgd)." in page
    page = model_card.as_markdown_page(replace(CARD, data="own", task="next-token"))
    assert "predicts the next token of a text. " in page
    assert "on 24 of the clients' own records (model.toml has their schema), in" in page


def _headings(page):
    return [line for line in page.splitlines() if line.startswith("#")]


def _rows(page):
    return [line for line in page.splitlines() if line.startswith("|")]


@pytest.mark.parametrize(
    "tampered",
    [
        {"task": "none"},
        {"privacy": replace(PRIVACY, towards=[])},
        {"privacy": replace(PRIVACY, neighbouring="none")},
        {"privacy": replace(PRIVACY, towards=[ReleasedTowards("none", "", {"pld": 1.0})])},
        {"privacy": replace(PRIVACY, towards=[ReleasedTowards("server", "", {})])},
        {"utility": MEASURED},  # errors without the range of the target
        {"utility": replace(MEASURED, errors={}, classes=["a", "b"], confusion=[[1, 2], [3]])},
    ],
)
def test_a_card_that_does_not_add_up_is_refused(tampered, tmp_path):
    (tmp_path / "public").mkdir()
    directory = RunDirectory(tmp_path)
    for card, refused in ((CARD, False), (replace(CARD, **tampered), True)):
        directory.write_json(CARD_FILE, TypeAdapter(ModelCard).dump_python(card, mode="json"))
        with pytest.raises(InputError, match="damaged") if refused else nullcontext():
            assert model_card.read_card(directory) == card
