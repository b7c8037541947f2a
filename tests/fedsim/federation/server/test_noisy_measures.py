"""A training asks its clients once for what the model does for them, and its card says it."""

import re
from pathlib import Path

import pytest
from flwr.clientapp import ClientApp

import fedsim
from adversaries.errors import InputError
from fedsim import client_app, server_app
from fedsim.configuration import JOBS, from_run_config, to_run_config
from fedsim.federation.runs.run_directory import RunDirectory
from fedsim.federation.runtimes.inprocess import InProcessGrid
from fedsim.federation.server import noisy_measures
from fedsim.federation.server.plan import prepare
from fedsim.learning.training import saved_model
from fedsim.reports import model_card, training_report
from fedsim.reports.tracking import trackers

ASKED = {
    "privacy.noise-source": "seed",
    "federation.measures-epsilon": 2.0,
    "federation.measures-share": 0.5,
    "data.records": 300,
    "privacy.delta": 0.003,
}


@pytest.fixture
def training(small, tmp_path):
    """Return a function that makes a small training that asks its clients."""

    def make(changes=None):
        values = to_run_config(small(ASKED | (changes or {})))
        return from_run_config(JOBS["training"](values | {"run.out": str(tmp_path / "trained")}))

    return make


def _train(config, app=client_app.app):
    plan = prepare(config)
    directory = plan.begin()
    grid = InProcessGrid(app, config.federation.clients, to_run_config(plan.config))
    server_app.carry_out(grid, plan, directory)
    return directory


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"federation.measures-share": 0.0}, "measures-share is 0, so no record is held back"),
        ({"federation.measures-epsilon": 0.0}, "Give federation.measures-epsilon above 0, or"),
        ({"federation.measures-share": 0.7}, "measures-share"),
        ({"privacy.unit": "client"}, "measures-epsilon"),
    ],
)
def test_measures_that_say_nothing_are_refused_before_anything_is_written(
    training, tmp_path, changes, complaint
):
    with pytest.raises(InputError, match=complaint):
        fedsim.train(training(changes), progress=False)
    assert not (tmp_path / "trained").exists()


def test_the_card_has_every_client_that_answered(training):
    config = training()
    directory = _train(config)
    card = model_card.read_card(directory)
    assert [one.client for one in card.client_measures] == list(range(config.federation.clients))
    for one in card.client_measures:
        assert one.epsilon == 2.0
        counted = sum(map(sum, one.confusion))
        each = config.data.records / config.federation.clients / 2
        assert abs(counted - each) < 60  # noise of a standard deviation of 7, and the share's 6
        assert len(one.classes) == 10
    tracked, step = trackers.headline(directory)
    assert (step, tracked["model/epsilon_measures"]) == (card.rounds, 2.0)
    text = (directory.path / model_card.PAGE).read_text()
    assert "| client 0 | 9 |" in text
    assert "cannot tell" in text
    assert card.privacy.measures_epsilon == 2
    assert "held back" in text.partition("At the clients")[0]  # beside the table of epsilons
    assert re.search(
        r"costs ε = 2 for a record that was held back \(δ = 0, (replace|add-remove)\)", text
    )


def test_a_client_that_does_not_answer_is_named_and_the_card_goes_without_it(training):
    def silent(message, context, answer):
        if message.metadata.message_type.endswith("measures") and context.node_id % 2:
            raise RuntimeError("no")
        return answer(message, context)

    app = ClientApp(mods=[silent])
    app.train()(client_app.train)
    app.evaluate()(client_app.evaluate)
    for name in ("identify", "data", "measures"):
        app.query(name)(getattr(client_app, f"_{name}"))
    directory = _train(training(), app)
    missing = training_report.assemble(directory).missing
    named = {one.client for one in missing}
    assert named
    assert {one.of for one in missing} == {"measures"}
    card = model_card.read_card(directory)
    assert named.isdisjoint(one.client for one in card.client_measures)


def test_who_goes_on_after_the_answers_does_not_ask_again_and_counts_every_question(
    training, monkeypatch
):
    class Killed(BaseException):
        pass

    def killed(*_, **__):
        raise Killed

    config, really = training(), RunDirectory.write_json

    def torn(self, file, value):
        if file == noisy_measures.FILE:
            raise Killed
        really(self, file, value)

    for place, name, instead in (
        (RunDirectory, "write_json", torn),
        (saved_model, "write_model", killed),
    ):
        monkeypatch.setattr(place, name, instead)
        with pytest.raises(Killed):
            _train(config)
        monkeypatch.undo()
    directory = RunDirectory.open(Path(config.run.out))
    asked, before = noisy_measures.read_measures(directory)
    assert asked == 2  # the first answers were forgotten, and are paid for
    card = model_card.read_card(_train(config))
    assert {one.client: one.confusion for one in card.client_measures} == before
    assert {one.epsilon for one in card.client_measures} == {4.0}


def test_a_task_without_classes_is_refused(small):
    with pytest.raises(InputError, match=r"federation\.measures-epsilon"):
        small({"federation.measures-epsilon": 1.0, "model.task": "regression"})
