"""The examples of docs/how-to/extending.md, each run as a user would run it."""

import re
import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import dump_svmlight_file

from adversaries import registry
from adversaries.errors import InputError
from fedsim.audits.run import report as results
from fedsim.commands.main import main
from fedsim.federation.runs.run_directory import RunDirectory
from fedsim.game import challenge
from fedsim.privacy.trust import Trust
from fedsim.reports.page import Pictures, render_html
from fedsim.reports.sections.evidence import SECTIONS

PAGE = Path(__file__).parents[1] / "docs" / "how-to" / "extending.md"
EXAMPLES = dict(
    re.findall(r"^### ([^\n]*)\n(?:(?!^#).)*?```python\n(.*?)```", PAGE.read_text(), re.M | re.S)
)
"""Their code by its heading."""


def _named(heading):
    """Return what the code of an example defines."""
    named = {}
    exec(EXAMPLES[heading], named)
    return named


@pytest.fixture
def lay_down(tmp_path, monkeypatch):
    """Return a function that makes examples the module `mine` and allows some names of it."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv(registry.ALLOWED, "")
    monkeypatch.delitem(sys.modules, "mine", raising=False)

    def lay(*headings, allow=()):
        (tmp_path / "mine.py").write_text("\n".join(EXAMPLES[heading] for heading in headings))
        registry.allow(f"mine:{name}" for name in allow)

    return lay


def _report(tmp_path, number=0):
    """Return the report of a run of the fixture `run`."""
    return results.read(RunDirectory.open(tmp_path / f"run-{number}"))


def test_a_membership_attack_is_played_in_a_run(lay_down, small, run, tmp_path):
    lay_down("A membership attack", allow=("QUANTILE",))
    run(small({"audit.attacks": "mine:QUANTILE", "trials.count": 24, "trials.batch": 24}))
    found = _report(tmp_path).details.membership_inference["mine:QUANTILE"]
    assert -1 <= found.advantage <= 1


def test_a_seat_at_the_server_concludes_and_raises_no_alarm(
    lay_down, small, run, tmp_path, monkeypatch
):
    lay_down("An adversary's seat", allow=("Uninformed",))
    seated = {
        "audit.mode": "mine:Uninformed",
        "federation.trust": "local",
    }
    with pytest.raises(InputError, match="observes only from 'server'; set"):
        run(small(seated))
    config = small(seated | {"federation.vantage": "server"})
    arrays = run(config, reported=True)
    # In the other world, the same trial's score of the first round differs by its effect.
    monkeypatch.setattr(challenge, "worlds", lambda *_: ~arrays["worlds"])
    other = run(config)
    scores = np.sort([arrays["log_odds"][:, 0], other["log_odds"][:, 0]], axis=0)
    effect = (arrays["sensitivities"] / arrays["noise_stds"])[:, 0] ** 2
    np.testing.assert_allclose(np.diff(scores, axis=0)[0], effect, rtol=1e-4)
    report = _report(tmp_path, 1)
    assert not report.rows["server"].attack.best
    assert report.alarms == 0


def test_a_trust_model_is_one_that_every_vantage_goes_by(small, run, monkeypatch):
    """The beliefs from the noise that was drawn are those worked out from what it says."""
    monkeypatch.setattr(Trust.LOCAL, "model", _named("A trust model")["SHARES"])
    known, worked_out = (
        run(small({"federation.trust": "local", "audit.vantages": "all", "audit.mode": mode}))
        for mode in ("oracle", "participant")
    )
    for name in ("log_odds", "log_odds_server", "noise_stds", "noise_stds_server"):
        np.testing.assert_allclose(known[name], worked_out[name], rtol=0, atol=1e-6)
    one_of_three = known["noise_stds_server"] / known["noise_stds"]
    np.testing.assert_allclose(one_of_three, 1 / np.sqrt(2))


def test_a_report_section_stands_on_the_page_in_its_place(small, run, tmp_path):
    section = _named("A report section")["SECTION"]
    run(small({}))
    report = _report(tmp_path)
    sections = (*SECTIONS[:1], section, *SECTIONS[1:])
    page = render_html(report, Pictures(report, {}), sections=sections)
    headings = re.findall(r'<h2 id="[^"]*">([^<]*) <a', page)
    place = headings.index(SECTIONS[0].title)
    assert headings[place + 1] == "Where the time went"
    assert f"<dt>Federation</dt><dd>{report.details.timing.federation:.1f} s</dd>" in page


def test_a_data_set_is_learnt_by_a_model(lay_down, small, run, tmp_path):
    lay_down("A data set", "A model", allow=("svmlight", "tanh"))
    random, file = np.random.default_rng(0), tmp_path / "clusters.svm"
    labels = random.integers(3, size=100)
    features = 6 * np.eye(3, 20)[labels] + random.standard_normal((100, 20))
    dump_svmlight_file(features, labels, str(file))
    own = {"data.name": "mine:svmlight", "data.root": str(file)}
    own |= {"model.name": "mine:tanh", "training.learning-rate": 2.0}
    few = {"trials.count": 2, "trials.batch": 2, "privacy.rho-beta": 0.0}
    arrays = run(small(own | few | {"privacy.noise-multiplier": 0.01, "training.rounds": 20}))
    assert arrays["accuracies"][-1].mean() > 0.8
    assert _report(tmp_path).details.parameters == 21 * 32 + 33 * 3


def test_an_accountant_calibrates_and_keeps_the_budget(lay_down, small, run, tmp_path, capsys):
    lay_down("An accountant", allow=("ZCDP",))
    target = {"privacy.rho-beta": 0.0, "privacy.epsilon": 2.0}
    run(small(target | {"privacy.accountant": "mine:ZCDP", "trials.count": 2, "trials.batch": 2}))
    report = _report(tmp_path)
    assert report.details.budget.epsilon["participant"] == pytest.approx(2)
    assert report.row.limit.epsilon < 1.5
    asked = ["account", "--epsilon", "1", "--delta", "1e-5", "--rounds", "10", "--accountant"]
    with pytest.raises(SystemExit) as ended:
        main([*asked, "mine:ZCDP"])
    assert ended.value.code == 0
    assert "mine:ZCDP: zCDP" in capsys.readouterr().out
