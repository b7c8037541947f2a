"""The report of a simulated Gaussian game whose every number is known in closed form."""

import copy
import json
import math
import re
from html import unescape
from html.parser import HTMLParser
from xml.etree import ElementTree

import numpy as np
import pytest
from rich.console import Console
from scipy.stats import kstest, norm

from fedsim import one_training
from fedsim.config import flatten
from fedsim.errors import InputError
from fedsim.report import Pictures, summary
from fedsim.report import render_html as render_page
from fedsim.report import write_figures as write_pictures
from fedsim.report_values import standard_errors_apart

pytestmark = pytest.mark.figures

TRIALS, ROUNDS, CLIP, NOISE_MULTIPLIER = 1000, 30, 3.0, 8.38022703488798
EPSILON, DELTA = 2.1972245773362196, 0.01
MU = math.sqrt(ROUNDS) / NOISE_MULTIPLIER
RHO_ALPHA = 0.2561767421042713
VOID, CELLS = {"meta", "img"}, {"th", "td", "dt", "dd", "small"}


def render_html(report, transcript):
    return render_page(report, Pictures(report, transcript))


def write_figures(report, transcript, directory):
    return write_pictures(Pictures(report, transcript), directory)


@pytest.fixture(scope="module")
def transcript():
    """The game with noise scaled to the local sensitivity: mu is the same in every trial."""
    random = np.random.default_rng(7)
    worlds = random.permutation(np.arange(TRIALS) % 2 == 0)
    sensitivities = random.uniform(0.5, CLIP, (TRIALS, ROUNDS))
    noise_stds = NOISE_MULTIPLIER * sensitivities
    mu = sensitivities / noise_stds
    centre = np.where(worlds, 0.5, -0.5)[:, None] * mu**2
    log_odds = np.cumsum(random.normal(centre, mu), axis=1)
    return {
        "worlds": worlds,
        "log_odds": log_odds,
        "sensitivities": sensitivities,
        "noise_stds": noise_stds,
    }


@pytest.fixture(scope="module")
def report(transcript):
    worlds, final = transcript["worlds"], transcript["log_odds"][:, -1]
    wins = int(((final > 0) == worlds).sum())
    advantage = 2 * wins / TRIALS - 1
    error = math.sqrt((1 - advantage**2) / TRIALS)
    exceeded = float((final[worlds] > EPSILON).mean())
    fits = {
        name: dict(
            zip(
                ("statistic", "p_value"),
                kstest(final[worlds == world], norm(sign * MU**2 / 2, MU).cdf),
                strict=True,
            )
        )
        for name, world, sign in (("world_d", True, 1), ("world_d_prime", False, -1))
    }
    accuracy = 0.9 - 0.8 * np.exp(-np.arange(ROUNDS + 1) / 8)
    loss = 2.3 * np.exp(-np.arange(ROUNDS + 1) / 12) + 0.3
    report = {
        "name": "digits, ρβ = 0.9",
        "created": "2026-01-02T03:04:05+00:00",
        "seed": 4711,
        "versions": {
            "fedsim": "0.1.0",
            "flwr": "1.41.0",
            "torch": "2.15.0",
            "numpy": "2.4.1",
            "python": "3.11.9",
        },
        "runtime": "inprocess",
        "device": "cpu",
        "noise_source": "system",
        "trust": "central",
        "vantage": "participant",
        "neighbouring": "add-remove",
        "trials": TRIALS,
        "rounds": ROUNDS,
        "owners": 3,
        "data": {
            "name": "digits",
            "records": 200,
            "held_out": 400,
            "partition": "iid",
            "owner_sizes": [67, 67, 66],
        },
        "model": {"name": "mlp", "parameters": 2410},
        "challenge": {
            "record": 17,
            "replacement": None,
            "owner": 0,
            "adversary": 2,
            "measure": "euclidean",
            "distance": 5123.25,
        },
        "mechanism": {
            "noise_multiplier": NOISE_MULTIPLIER,
            "effective_noise_multiplier": NOISE_MULTIPLIER,
            "clipping_norm": CLIP,
            "sensitivity": "global",
            "steps": ROUNDS,
            "sampling_rate": 1.0,
            "learning_rate": 0.005,
            "dp_guarantee": True,
            "dp_note": "Noise came from the operating system.",
        },
        "bounds": {
            "epsilon": EPSILON,
            "delta": DELTA,
            "rho_beta": 0.9,
            "rho_alpha": RHO_ALPHA,
            "accountant": "rdp-classic",
            "tight_epsilon": 1.3134725502396565,
            "tight_rho_beta": 0.7881,
            "tail_probability": 0.0012027268180968128,
            "tail_limit": 0.0030,
            "theorem2_rho_alpha": 0.276312177349733,
            "yeom_bound": 8.0,
            "vantages": [
                {
                    "vantage": "server",
                    "noise_multiplier": 0.0,
                    "epsilon": None,
                    "rho_beta": 1.0,
                    "rho_alpha": 1.0,
                    "note": "sees every owner's clean sum",
                },
                {
                    "vantage": "participant",
                    "noise_multiplier": NOISE_MULTIPLIER,
                    "epsilon": 1.3134725502396565,
                    "rho_beta": 0.7881,
                    "rho_alpha": RHO_ALPHA,
                    "note": "",
                },
                {
                    "vantage": "released-model",
                    "noise_multiplier": NOISE_MULTIPLIER,
                    "epsilon": 1.3134725502396565,
                    "rho_beta": 0.7881,
                    "rho_alpha": RHO_ALPHA,
                    "note": "the participant's bound is an upper bound",
                },
            ],
        },
        "prediction": {
            "mu": MU,
            "advantage": RHO_ALPHA,
            "deterministic": True,
            "distance": {"standard_error": error, "p_value": 0.25},
            "fit": fits,
        },
        "empirical": {
            "advantage": advantage,
            "advantage_interval": [advantage - 1.96 * error, advantage + 1.96 * error],
            "standard_error": error,
            "confidence": 0.95,
            "wins": wins,
            "losses": TRIALS - wins,
            "ties": 0,
            "delta_prime": exceeded,
            "delta_prime_interval": [0.0001, 0.0112],
            "epsilon": {
                "sensitivity": 2.197,
                "sensitivity_exact": 1.3135,
                "belief": float(final[worlds].max()),
                "advantage": 2.0318,
            },
            "lower_bounds": {
                "clopper_pearson": {
                    "epsilon": 0.3721,
                    "method": "Clopper–Pearson on the rates of the decision Λ > 0",
                    "assumes": "independent trials",
                    "trusts_noise": False,
                },
                "gaussian": {
                    "epsilon": 1.1017,
                    "method": "studentised difference of the two worlds' log-odds",
                    "assumes": "Gaussian log-odds",
                    "trusts_noise": True,
                },
            },
            "sensitivity_rms": float(np.sqrt((transcript["sensitivities"] ** 2).mean())),
            "sensitivity_max": float(transcript["sensitivities"].max()),
            "sensitivity_bound": CLIP,
        },
        "membership_inference": {
            "yeom": {
                "advantage": 0.0415,
                "advantage_interval": [0.0302, 0.0528],
                "advantage_interval_of_these": [0.0402, 0.0428],
                "tpr": 0.5312,
                "fpr": 0.4897,
            },
            "yeom_challenge": {"advantage": 0.0714, "advantage_interval": [0.0093, 0.1335]},
        },
        "utility": {
            "rounds": list(range(ROUNDS + 1)),
            "accuracy": {
                "mean": accuracy.tolist(),
                "low": (accuracy - 0.04).tolist(),
                "high": (accuracy + 0.03).tolist(),
            },
            "loss": {
                "mean": loss.tolist(),
                "low": (loss - 0.05).tolist(),
                "high": (loss + 0.06).tolist(),
            },
            "trials": 20,
            "records": 400,
        },
        "timing": {"train": 12.75, "audit": 1.5},
        "warnings": ["Under central trust the server sees every owner's clean sum."],
    }
    return json.loads(json.dumps(report))


@pytest.fixture(scope="module")
def html(report, transcript):
    return render_html(report, transcript)


@pytest.fixture
def wording_only(monkeypatch):
    """Leave out the figures, which take nearly all of the time, where only the words matter."""
    monkeypatch.setattr("fedsim.report_figures.drawn_figures", lambda report, transcript: {})


class Page(HTMLParser):
    """Collects text, attributes and ids, and insists that every tag that opens is closed."""

    def __init__(self, html):
        super().__init__()
        self.open, self.ids, self.attributes, self.tags, self.text = [], [], [], [], ""
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.handle_startendtag(tag, attrs)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self.text += " " if tag in CELLS else ""
        self.attributes += attrs
        self.ids += [value for name, value in attrs if name == "id"]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open[-1:] != ["style"]:
            self.text += data

    @property
    def words(self):
        return " ".join(self.text.split())


def changed(report, path, value):
    """A copy of the report with the value at one dotted path replaced."""
    result = copy.deepcopy(report)
    *parents, last = path.split(".")
    table = result
    for parent in parents:
        table = table[parent]
    table[last] = value
    return result


def replaced(tree, leaf):
    """A copy of the report with every value replaced; lists become one value where it is None."""
    if isinstance(tree, dict):
        return {key: replaced(value, leaf) for key, value in tree.items()}
    if isinstance(tree, list):
        return [replaced(value, leaf) for value in tree] if leaf(0) == 0 else leaf(tree)
    return leaf(tree)


def visible(html):
    """The text of the page without the appendix that lists report.json."""
    return Page(html.partition("<details>")[0] + "</main></body></html>").words


def console_text(report):
    console = Console(width=140)
    with console.capture() as capture:
        console.print(summary(report))
    return capture.get()


def test_the_page_is_balanced_html_with_unique_ids(html):
    page = Page(html)
    assert page.tags.count("svg") == page.tags.count("figure") == 6
    assert len(page.ids) == len(set(page.ids)) > 100
    references = {
        reference
        for name, value in page.attributes
        for reference in re.findall(r"url\(#([^)]+)\)", value or "")
        + ([value[1:]] if name.endswith("href") else [])
    }
    assert references <= set(page.ids)
    assert references


def test_the_page_needs_nothing_but_itself(html):
    assert "http" not in html
    assert "@import" not in html
    assert not {"script", "link", "iframe", "object"} & set(Page(html).tags)


def test_every_figure_has_a_text_alternative(html):
    page = Page(html)
    alternatives = [value for name, value in page.attributes if name == "aria-label"]
    assert len(alternatives) == 6
    assert any("0.256" in alternative for alternative in alternatives)


@pytest.mark.usefixtures("wording_only")
def test_the_verdict_is_one_sentence_for_everybody(report, transcript):
    wins = report["empirical"]["wins"]
    assert (
        "An adversary who took part in this federation and knew everything except whether this "
        f"one person's record was used answered that question correctly in {wins / 10:.1f}% of "
        "1000 trials, where tossing a coin is right in 50%. Theory allows at most 62.8%."
    ) in visible(render_html(report, transcript))


@pytest.mark.usefixtures("wording_only")
@pytest.mark.parametrize(
    ("path", "value", "sentence"),
    [
        ("vantage", "server", "An adversary who ran the server of this federation"),
        ("vantage", "released-model", "An adversary who saw only the released model"),
        ("neighbouring", "replace", "except which of two people's records was used"),
        ("unit", "client", "except whether this one owner's data were used"),
        ("bounds.rho_alpha", 1.0, "Theory sets no limit below 100%"),
        ("bounds.rho_alpha", None, "For this vantage theory states no limit."),
    ],
)
def test_the_verdict_names_the_adversary_and_the_secret(report, transcript, path, value, sentence):
    assert sentence in visible(render_html(changed(report, path, value), transcript))


@pytest.mark.usefixtures("wording_only")
@pytest.mark.parametrize(
    ("kind", "copies", "neighbouring", "asked"),
    [
        ("record", 2, "add-remove", "whether 2 copies of this one person's record were used"),
        ("record", 2, "replace", "which of two people's records was used, in 2 copies,"),
        ("blank", 1, "add-remove", "whether a record that was made for the audit was used"),
        (
            "clipbkd",
            1,
            "replace",
            "whether a record that was made for the audit was used or the original record",
        ),
        (
            "gradient",
            3,
            "replace",
            "whether 3 copies of a gradient that was made for the audit were used or 3 copies of "
            "its opposite",
        ),
    ],
)
def test_the_verdict_asks_about_what_is_in_question(
    report, transcript, kind, copies, neighbouring, asked
):
    report = changed(report, "challenge.kind", kind)
    report = changed(report, "challenge.records", copies)
    text = visible(render_html(changed(report, "neighbouring", neighbouring), transcript))
    assert f"knew everything except {asked} answered that question correctly" in text


@pytest.mark.usefixtures("wording_only")
def test_very_few_trials_are_no_finding(report, transcript):
    assert "No finding" not in visible(render_html(report, transcript))
    few = {"wins": 2, "losses": 0, "ties": 0, "advantage_interval": [-0.6838, 1.0]}
    few = report | {"trials": 2, "empirical": report["empirical"] | few}
    low = "No finding yet: by 2 trials the adversary may be right in anything from 15.8% to 100% "
    assert f"{low}(95% interval). An adversary" in visible(render_html(few, transcript))
    # Of one world there is no interval of the advantage.
    one = {"wins": 2, "losses": 0, "ties": 0, "advantage_interval": None}
    one = report | {"trials": 2, "empirical": report["empirical"] | one}
    text = visible(render_html(one, transcript))
    assert "by 2 trials the adversary may be right in anything from 15.8% to 100%" in text


@pytest.mark.usefixtures("wording_only")
def test_one_training_has_no_statistics_and_its_report_has_none(report, transcript):
    told = one_training.without_rates(report | {"trials": 1, "vantages": {}, "pac": {}})
    page, shown = visible(render_html(told, transcript)), console_text(told)
    assert "One training has no statistics: how often an adversary is right cannot be told" in page
    assert "came to believe with 88.9% that the challenge record was used" in page
    assert "answered that question correctly" not in page
    assert "How often was the adversary right? –" in page
    for name in ("advantage", "δ′"):
        assert re.search(rf"│ {name} +│ +– │ +│", shown)


@pytest.fixture
def with_canaries(report):
    """A report with a one-run audit."""
    bound = {
        "epsilon": 2.444,
        "confidence": 0.9,
        "assumes": "coins",
        "details": {"right": 111, "guesses": 125},
    }
    estimate = {
        "epsilon": 4.2,
        "mu": 0.97,
        "assumes": "normal scores",
        "epsilon_interval": {"low": 3.5, "high": 4.9},
    }
    found = {
        "kind": "dirac",
        "known_data": True,
        "count": 1000,
        "owners": [0, 1, 2],
        "headline_trial": 0,
        "confidence": 0.9,
        "claimed_epsilon": 4.5,
        "canary_mu": 0.925,
        "canary_epsilon": 4.0,
        "bounds": {"binomial": bound | {"epsilon": 1.585}, "f_dp": bound},
        "estimate": estimate,
        "spread": None,
        "alarm": None,
        "note": "About one canary.",
    }
    return report | {"one_run": found}


@pytest.mark.usefixtures("wording_only")
def test_what_canaries_prove_leads(report, with_canaries, transcript):
    text = visible(render_html(with_canaries, transcript))
    assert (
        "The canaries of one trial prove ε ≥ 2.444 with 90.0% confidence (one-run f-DP bound); "
        "claimed is ε = 4.500." in text
    )
    assert (
        "How much privacy loss is proven? ε ≥ 2.444 one trial, 90.0% confidence ε ≤ 4 Consistent. "
        "By the one-run f-DP bound, of one canary. Claimed: ε = 4.500 towards a participant."
        in text
    )
    assert "How much do the trials prove beside it? ε ≥ 0.372" in text
    assert "beside it?" not in visible(render_html(report, transcript))
    nothing = changed(with_canaries, "one_run.bounds.f_dp.epsilon", 0.0)
    nothing = changed(nothing, "empirical.lower_bounds.clopper_pearson.epsilon", 0.0)
    text = visible(render_html(nothing, transcript))
    assert "The canaries of one trial prove nothing with 90.0% confidence" in text
    assert "is proven? nothing one trial, 90.0% confidence ε ≤ 4 By the one-run" in text
    assert "prove beside it? nothing ε ≤ " in text
    alarming = with_canaries | {"alarms": {"one_run": "Too much."}}
    alarming["one_run"] = with_canaries["one_run"] | {"canary_epsilon": 2.0}
    text = visible(render_html(alarming, transcript))
    assert "ε ≤ 2 Above theory. By the one-run f-DP bound" in text
    noiseless = with_canaries["one_run"] | {"canary_epsilon": None, "claimed_epsilon": None}
    text = visible(render_html(report | {"one_run": noiseless}, transcript))
    assert "90.0% confidence – By the one-run f-DP bound, of one canary. Claimed: ε = ∞" in text


def test_every_measured_and_theoretical_number_is_in_the_text(report, html):
    text = visible(html)
    empirical, bounds = report["empirical"], report["bounds"]
    low, high = empirical["advantage_interval"]
    expected = [
        f"{empirical['advantage']:.3f} (95% interval {low:.3f} to {high:.3f})",
        f"± {empirical['standard_error']:.3f}",
        f"{empirical['wins']}, {empirical['losses']}, 0",
        f"{empirical['epsilon']['belief']:.3f}",
        f"root mean square {empirical['sensitivity_rms']:.3f}",
        f"{bounds['theorem2_rho_alpha']:.3f}: presumes",
        "paper (Theorem 2), not a bound",
        f"ε at δ = {DELTA} 2.197, accountant rdp-classic",
        f"p = {report['prediction']['fit']['world_d']['p_value']:.3f}",
        f"p = {report['prediction']['fit']['world_d_prime']['p_value']:.3f}",
    ]
    expected += ["2.197", "1.313", "2.032", "0.372", "1.102", "0.900", "0.788", "0.256", "0.654"]
    expected += [
        "0.0012",
        "e^ε − 1 = 8",
        "of pure ε",
        "0.042 0.030 to 0.053",
        "0.071 0.0093 to 0.134",
    ]
    expected += ["53.1%", "49.0%", "0.01% to 1.1%", "10.0% → 88.1%", "2.600 → 0.489", "67, 67, 66"]
    expected += ["4711", "8.380227035", "Learning rate 0.005", "5123.25", "2410", "12.75", "1.5"]
    expected += list(report["versions"].values())
    assert [number for number in expected if number not in text] == []


def test_the_appendix_lists_every_value_of_the_report(report, html):
    words = Page(html).words
    appendix = words.partition("Every value of report.json")[2]
    for name, value in flatten(report):
        assert name in appendix
        if isinstance(value, float):
            assert f"{value:.10g}" in appendix
    for mean in report["utility"]["loss"]["mean"]:
        assert f"{mean:.10g}" in appendix


def test_hostile_text_is_shown_and_never_obeyed(report, transcript):
    hostile = '<script>alert("x")</script>'
    for path in (
        "name",
        "created",
        "trust",
        "vantage",
        "device",
        "data.name",
        "challenge.measure",
        "bounds.accountant",
        "mechanism.dp_note",
        "versions.fedsim",
    ):
        report = changed(report, path, hostile)
    report["warnings"] = [hostile]
    report["bounds"]["vantages"][0]["note"] = hostile
    report["empirical"]["lower_bounds"][hostile] = {"epsilon": 0.1, "method": hostile}
    report["membership_inference"][f"{hostile} $\\frac$"] = {"advantage": 0.1}
    html = render_html(report, transcript)
    page = Page(html)
    assert "script" not in page.tags
    assert hostile in page.text
    assert "<script" not in html


def test_rich_markup_in_a_name_is_shown_as_it_is(report):
    assert "[bold]loud[/bold]" in console_text(report | {"name": "[bold]loud[/bold]"})


def test_a_report_of_nothing_but_nulls_still_renders(report, transcript):
    nothing = replaced(report, lambda value: None)
    text = visible(render_html(nothing, transcript))
    assert "answered that question correctly in – of – trials" in text
    assert "None" not in text.replace("None was computed", "")
    assert "None" not in console_text(nothing)


def test_not_a_number_never_reaches_the_reader(report, transcript):
    broken = replaced(report, lambda value: math.nan if isinstance(value, float) else value)
    html = render_html(broken, transcript)
    assert not re.search(r"\bnan\b", Page(html).text + console_text(broken), re.IGNORECASE)


def test_an_absent_section_is_a_gap_and_not_an_error(report, transcript):
    for gap in (None, {}):
        sections = ("utility", "membership_inference", "timing", "prediction")
        html = render_html(report | dict.fromkeys(sections, gap), transcript)
        assert Page(html).tags.count("figure") == 5
        assert "Membership inference" not in html
        assert "What the model is worth" not in html


@pytest.mark.usefixtures("wording_only")
def test_an_infinite_epsilon_is_shown_with_its_reason(report, transcript):
    for path, value in {
        "vantage": "server",
        "mechanism.effective_noise_multiplier": 0.0,
        "bounds.epsilon": None,
        "bounds.rho_beta": None,
        "bounds.rho_alpha": None,
        "empirical.epsilon.belief": None,
    }.items():
        report = changed(report, path, value)
    text = visible(render_html(report, transcript))
    assert "∞ (no noise hides the record at this vantage)" in text
    assert "Theory sets no limit below 100%" in text
    assert "No protection." in text
    assert "from belief ∞ (no noise)" in text


@pytest.mark.usefixtures("wording_only")
def test_an_advantage_of_one_has_an_infinite_epsilon(report, transcript):
    report = changed(report, "empirical.advantage", 1.0)
    report = changed(report, "empirical.epsilon.advantage", None)
    assert "∞ (every trial won)" in visible(render_html(report, transcript))


@pytest.mark.usefixtures("wording_only")
def test_noise_scaled_to_local_sensitivity_is_labelled_no_guarantee(report, transcript):
    label = "Measurement, not a DP guarantee."
    assert label not in render_html(report, transcript)
    local = changed(report, "mechanism.sensitivity", "local")
    text = visible(render_html(local, transcript))
    assert label in text
    assert "A tautology here" in text
    assert label in console_text(local)


@pytest.mark.usefixtures("wording_only")
def test_seeded_noise_is_labelled_reproducible(report, transcript):
    label = "Experiment: noise is reproducible, not a DP guarantee."
    assert label not in render_html(report, transcript)
    seeded = report | {"noise_source": "seed"}
    assert f"{label} It comes from seed 4711" in visible(render_html(seeded, transcript))
    assert label in console_text(seeded)


@pytest.mark.usefixtures("wording_only")
@pytest.mark.parametrize(("how", "labelled"), [("simulated", True), ("secagg+", False)])
def test_a_simulation_of_secure_aggregation_is_labelled_no_guarantee(
    how, labelled, report, transcript
):
    report = changed(report, "mechanism.rounding", {"secure_aggregation": how})
    text = visible(render_html(report, transcript))
    assert ("Simulated secure aggregation, not a DP guarantee." in text) == labelled


@pytest.mark.usefixtures("wording_only")
def test_any_other_lack_of_a_guarantee_is_labelled_with_its_note(report, transcript):
    report = changed(report, "mechanism.dp_guarantee", False)
    text = visible(render_html(report, transcript))
    assert "Not a DP guarantee. Noise came from the operating system." in text


@pytest.mark.usefixtures("wording_only")
def test_the_audited_vantage_is_marked_and_the_server_is_told_to_see_everything(report, transcript):
    text = visible(render_html(report, transcript))
    assert "server 0 ∞ 100% 1 – – sees every owner's clean sum" in text
    assert "participant audited here 8.380 1.313 78.8% 0.256" in text
    assert text.count("audited here") == 1


@pytest.mark.usefixtures("wording_only")
@pytest.mark.parametrize(
    ("interval", "words", "alarm"),
    [
        ([0.20, 0.31], "Compatible with the limit.", False),
        ([0.05, 0.16], "Below the limit.", False),
        ([0.26, 0.37], "Above the limit, within chance.", False),
    ],
)
def test_the_interval_is_read_against_the_bound(report, transcript, interval, words, alarm):
    html = render_html(changed(report, "empirical.advantage_interval", interval), transcript)
    assert f"the limit ρα is 0.256. {words}" in visible(html)
    assert ('class="verdict alarm"' in html) is alarm


@pytest.mark.usefixtures("wording_only")
def test_a_lower_bound_above_theory_is_an_alarm(report, transcript):
    assert 'class="verdict alarm"' not in render_html(report, transcript)
    report = changed(report, "empirical.lower_bounds.clopper_pearson.epsilon", 1.32)
    report = changed(report, "empirical.lower_bounds.clopper_pearson.p_value", 0.031)
    told = visible(render_html(report, transcript))
    assert "Above theory, within chance (p = 0.031)" in told
    assert "It is above its limit, within what chance alone gives." in told
    assert "above theory, within chance (p = 0.031)" in console_text(report)
    html = render_html(report | {"alarms": {"clopper_pearson": "too much"}}, transcript)
    assert 'class="verdict alarm"' in html
    assert "ε ≥ 1.320 ε ≤ 1.313 Above theory." in visible(html)


@pytest.mark.usefixtures("wording_only")
def test_an_epsilon_is_only_compared_with_one_of_the_same_accounting(report, transcript):
    classic = visible(render_html(report, transcript))
    assert "from sensitivities, classic RDP 2.197 2.197" in classic
    assert "from sensitivities, exact 1.313 1.313" in classic
    other = visible(render_html(changed(report, "bounds.accountant", "pld"), transcript))
    assert "from sensitivities, classic RDP 2.197 –" in other


@pytest.mark.usefixtures("wording_only")
def test_a_lower_bound_that_says_nothing_says_why(report, transcript):
    assert "Says nothing here" not in visible(render_html(report, transcript))
    report = changed(report, "empirical.lower_bounds.gaussian.reason", "trials of one world only")
    text = visible(render_html(report, transcript))
    assert "Says nothing here: trials of one world only." in text


@pytest.mark.usefixtures("wording_only")
def test_warnings_stand_before_the_numbers(report, transcript):
    text = visible(render_html(report, transcript))
    assert text.index(report["warnings"][0]) < text.index("In short")
    assert report["warnings"][0] in " ".join(console_text(report).split())


def test_sampled_steps_have_no_gaussian_curve(report, transcript, html):
    sampled = render_html(changed(report, "mechanism.sampling_rate", 0.1), transcript)
    assert "predicted for D" in html
    assert "predicted for D" not in sampled
    assert "Sampled steps have no Gaussian prediction." in visible(sampled)


def with_steps(report, **mechanism):
    """The report of a run whose steps were taken in another way, as the audit states it."""
    training = {
        "optimizer": "sgd",
        "momentum": 0.9,
        "schedule": "cosine",
        "learning_rate": 0.5,
        "local_learning_rate": 0.0,
        "warmup_rounds": 5,
    }
    changes = {
        "mechanism": {**report["mechanism"], **mechanism},
        "training": training,
        "audit_mode": "participant",
        "precision": "float32",
        "model": {**report["model"], "gradient_fallbacks": {}},
    }
    return {**copy.deepcopy(report), **changes}


@pytest.fixture
def sampled(report):
    edges = np.linspace(-3, 3, 11)
    heights = norm.pdf(edges[:-1] + 0.3).tolist()
    density = {"edges": edges.tolist(), "world_d": heights, "world_d_prime": heights[::-1]}
    prediction = {
        **{"method": "simulation", "standard_error": 0.001, "density": density},
        **{"mu": MU, "advantage": 0.2, "deterministic": True, "fit": {}},
        "distance": {"standard_error": 0.1, "p_value": 0.25},
    }
    changed_steps = with_steps(report, sampling_rate=0.1, local_steps=1)
    return {**changed_steps, "prediction": prediction}


def test_sampled_steps_are_drawn_beside_the_simulated_prediction(sampled, transcript):
    page = render_html(sampled, transcript)
    assert "predicted for D" in page
    assert "played again with the recorded gradient norms and noise" in visible(page)


@pytest.mark.usefixtures("wording_only")
def test_sampled_steps_are_explained(sampled, transcript):
    text = visible(render_html(sampled, transcript))
    assert "every record took part with probability 0.1, by itself (Poisson sampling)" in text
    assert "· sampling rate 0.1" in text
    assert "the signal-to-noise ratio were every step unsampled" in text
    assert "0.200 ± 0.001 (the game played again" in text
    assert "each sampled step at the trial's root mean square ratio" in text


@pytest.mark.usefixtures("wording_only")
def test_the_error_of_a_simulated_prediction_counts_in_the_comparison(sampled):
    coarse = changed(sampled, "prediction.standard_error", 3.0)
    assert standard_errors_apart(coarse) == "(0.0 standard errors apart, p = 0.250)"


@pytest.mark.usefixtures("wording_only")
def test_sampled_replacement_has_no_estimate_from_sensitivities(sampled, transcript):
    none = changed(changed(sampled, "neighbouring", "replace"), "empirical.epsilon", {})
    text = visible(render_html(none, transcript))
    assert "from sensitivities, exact – 1.313 None: where replaced records are sampled" in text


@pytest.mark.usefixtures("wording_only")
def test_local_steps_are_explained_and_their_score_is_not_taken_for_a_belief(report, transcript):
    local = with_steps(report, local_steps=4, steps=4 * ROUNDS)
    text = visible(render_html(local, transcript))
    assert "every owner took 4 noisy steps on a model of its own: 120 noisy steps are" in text
    assert "the bounds grant every vantage all of these steps" in text
    assert text.count("describes the score of a linearised attack and is not bounded") == 4
    assert "of the linearised attack; its score follows" in text
    assert "Local learning rate" in text
    surer = text.partition("How often was it surer than ρβ?")[2].partition("How much privacy")[0]
    assert "Compatible with the limit" not in surer
    assert "linearised" not in visible(render_html(with_steps(report, local_steps=1), transcript))


@pytest.fixture
def of_owners(report):
    """A report in which all data of owner 1 are in question."""
    challenge = {"record": None, "replacement": None, "owner": 1, "records": 12}
    training = {"local_epochs": 1, "batch_size": 0}
    owners = {"unit": "client", "challenge": report["challenge"] | challenge}
    return report | owners | {"training": report.get("training", {}) | training}


@pytest.mark.usefixtures("wording_only")
def test_an_owner_in_question_is_named_wherever_a_record_would_be(of_owners, transcript):
    text = visible(render_html(of_owners, transcript))
    assert "except whether this one owner's data were used" in text
    assert "with all 12 records of owner 1 or on the neighbouring D′, where it has none" in text
    assert "for 1 epoch in one batch, and sent how far it came, clipped as a whole" in text
    assert "Unit of privacy all data of one owner" in text
    assert "It asks about single records, which the bounds are not about." in text
    assert "challenge record" not in text
    assert "person's record" not in text
    replaced = changed(of_owners, "neighbouring", "replace")
    text = visible(render_html(replaced, transcript))
    assert "except which of two sets of data this one owner used" in text
    assert "the neighbouring D′, where as many others take their place" in text


@pytest.mark.usefixtures("wording_only")
@pytest.mark.parametrize(("neighbouring", "share"), [("add-remove", 0.5), ("replace", 1.0)])
def test_what_protects_an_owner_protects_each_record_by_its_part(
    neighbouring, share, of_owners, transcript
):
    changed_report = changed(of_owners, "neighbouring", neighbouring)
    text = visible(render_html(changed_report, transcript))
    multiplier = share * of_owners["mechanism"]["effective_noise_multiplier"]
    assert f"replace neighbours at noise multiplier {multiplier:.3f}:" in text
    measured = changed(changed_report, "mechanism.sensitivity", "local")
    assert "What follows for one record" not in visible(render_html(measured, transcript))


@pytest.mark.usefixtures("wording_only")
def test_the_optimiser_and_its_schedule_are_named(report, transcript):
    text = visible(render_html(with_steps(report), transcript))
    assert (
        "The server's optimiser was sgd (momentum 0.9), its learning rate 0.5 on the schedule "
        "cosine after 5 rounds of warm-up."
    ) in text
    assert "Warmup rounds 5" in text
    assert "Local learning rate" not in text


@pytest.mark.usefixtures("wording_only")
@pytest.mark.parametrize(
    ("fallbacks", "sentence"),
    [
        ({}, "passes ran in bf16; every layer was clipped by its own rule."),
        ({"norm": "no rule"}, "whose gradients went through torch.func: norm (no rule)."),
        (None, "Forward and backward passes ran in bf16."),
    ],
)
def test_the_page_says_how_gradients_were_computed(report, transcript, fallbacks, sentence):
    steps = changed(with_steps(report), "model.gradient_fallbacks", fallbacks)
    assert sentence in visible(render_html(changed(steps, "precision", "bf16"), transcript))


@pytest.mark.usefixtures("wording_only")
def test_where_a_gradient_is_in_question_the_game_speaks_of_no_record(report, transcript):
    made = changed(changed(report, "challenge.kind", "gradient"), "challenge.records", 2)
    assert "on the data D with 2 challenge gradients" in visible(render_html(made, transcript))


@pytest.mark.usefixtures("wording_only")
def test_an_instrumented_audit_is_labelled_no_guarantee(report, transcript):
    instrumented = changed(with_steps(report, dp_guarantee=False), "audit_mode", "instrumented")
    text = visible(render_html(instrumented, transcript))
    assert text.count("Instrumented audit, not a DP guarantee.") == 1
    assert text.count(" Not a DP guarantee.") == 0
    assert "computed by the auditor, from the noise that was drawn" in text


def test_local_steps_are_drawn_without_a_limit_that_clipping_does_not_set(report, transcript):
    local = with_steps(report, local_steps=4, steps=4 * ROUNDS)
    unlimited = changed(local, "empirical.sensitivity_bound", None)
    text = visible(render_html(unlimited, transcript))
    assert "which clipping does not limit" in text
    assert "clipping allows" not in text


@pytest.fixture
def gathered(report):
    """The report of a run whose owners compared their records."""
    rounds = [1, 15, 30]
    found = {
        "delta": DELTA,
        "gamma": 3e-15,
        "pairs": 48,
        "percentile": 0.99,
        "trials": 20,
        "epsilon": {"mean": 0.5125, "max": 0.5375},
        "epsilon_at_percentile": {"mean": 0.9125, "max": 0.9375},
        "orders": [3, 17],
        "dp_epsilon": 1.3134725502396565,
        "worst_case_epsilon": 2.2192395320580185,
        "by_round": {
            "rounds": rounds,
            "epsilon": [0.125, 0.25, 0.5125],
            "epsilon_at_percentile": [0.25, 0.5, 0.9125],
            "dp_epsilon": [0.5, 1.0, 1.3134725502396565],
        },
        "note": "",
    }
    return changed(report, "bayesian", found)


@pytest.mark.usefixtures("wording_only")
def test_bayesian_epsilon_stands_beside_that_of_dp_with_what_it_means(gathered, transcript):
    text = visible(render_html(gathered, transcript))
    for words in (
        "Bayesian ε at δ = 0.01 0.512 (mean of 20 trials; largest 0.537)",
        "Bayesian ε, each of 99% of people 0.912 (mean of 20 trials; largest 0.938)",
        "ε of DP, everybody 1.313",
        "48 records in every round; γ = 3e-15",
        "3 to 17",
        "no guarantee for outliers",
        "released without protection",
    ):
        assert words in text, words
    assert "adds nothing" not in text
    assert re.search(r"ε Bayesian DP\s*│\s*0\.512", console_text(gathered))
    looser = changed(gathered, "bayesian.epsilon.mean", 1.4)
    assert "Here it adds nothing to DP" in visible(render_html(looser, transcript))
    assert "looser than the loss distribution" in visible(render_html(looser, transcript))
    noted = changed(gathered, "bayesian.note", "the best order is the largest")
    assert "Note the best order is the largest" in visible(render_html(noted, transcript))
    pairs = changed(gathered, "neighbouring", "replace")
    assert "48 pairs of records" in visible(render_html(pairs, transcript))


def test_bayesian_epsilon_is_drawn_beside_that_of_dp(gathered, transcript):
    page = Page(render_html(gathered, transcript))
    assert page.tags.count("figure") == 7
    assert "Privacy spent, round by round." in page.text
    assert "DP, everybody" in page.text


@pytest.mark.parametrize("leaf", [lambda value: None, lambda value: math.nan])
def test_a_bayesian_section_without_numbers_still_renders(gathered, transcript, leaf):
    empty = changed(gathered, "bayesian", replaced(gathered["bayesian"], leaf))
    text = visible(render_html(empty, transcript))
    assert "Bayesian ε at δ = –" in text
    assert not re.search(r"\bnan\b|None", text)


@pytest.mark.usefixtures("wording_only")
def test_without_clipping_every_limit_is_void_for_the_right_reason(gathered, transcript):
    void = changed(gathered, "mechanism.clipping", False)
    void = changed(void, "mechanism.effective_noise_multiplier", 0.0)
    for path in ("bounds.epsilon", "bounds.tight_epsilon", "bayesian.dp_epsilon"):
        void = changed(void, path, None)
    void = changed(void, "bounds.rho_alpha", 1.0)
    text = visible(render_html(void, transcript))
    assert "Gradients are not clipped: no DP guarantee." in text
    assert text.count("∞ (gradients are not clipped: nothing bounds what one record can") == 2
    assert "No guarantee" in text
    assert "No protection" not in text
    assert "no noise" not in text
    # No limit of the belief: nothing is surer than it, compatible with it, or short of it.
    assert "Without clipping nothing sets it a limit." in text
    for words in ("How often was it surer", "may be passed, but", "is slack", "ε ≤ ∞"):
        assert words not in text, words
    assert "Differential privacy sets no limit here" in text


def test_the_same_run_gives_the_same_page(report, transcript, html):
    assert html == render_html(copy.deepcopy(report), dict(transcript))


def test_a_figure_too_large_for_svg_becomes_an_embedded_png(
    report, transcript, tmp_path, monkeypatch
):
    monkeypatch.setattr("fedsim.report_figures.LARGEST_SVG", 100_000)
    page = Page(render_html(report, transcript))
    sources = [value for name, value in page.attributes if name == "src"]
    assert len(sources) == 1
    assert sources[0].startswith("data:image/png;base64,iVBOR")
    assert any(name == "alt" and "belief" in value for name, value in page.attributes)
    paths = write_figures(report, transcript, tmp_path)
    assert (tmp_path / "belief.png") in paths
    assert (tmp_path / "belief.png").read_bytes().startswith(b"\x89PNG")


def test_figures_are_written_as_standalone_svg(report, transcript, tmp_path):
    paths = write_figures(report, transcript, tmp_path / "new" / "figures")
    assert sorted(path.name for path in paths) == [
        "advantage.svg",
        "belief.svg",
        "log-odds.svg",
        "lower-bounds.svg",
        "sensitivity.svg",
        "utility.svg",
    ]
    for path in paths:
        assert ElementTree.fromstring(path.read_text()).tag == "{http://www.w3.org/2000/svg}svg"


def test_the_summary_sets_every_measure_beside_its_limit(report):
    text = console_text(report)
    low, high = report["empirical"]["advantage_interval"]
    rows = {
        line.split("│")[1].strip(): [cell.strip() for cell in line.split("│")[2:-1]]
        for line in text.splitlines()
        if "│" in line
    }
    advantage = report["empirical"]["advantage"]
    apart = abs(advantage - RHO_ALPHA) / report["empirical"]["standard_error"]
    assert rows["advantage"] == [f"{advantage:.3f}", f"{low:.3f} to {high:.3f}", "ρα 0.256"]
    told = f"({apart:.1f} standard errors apart, p = 0.250)"
    assert rows["advantage predicted"] == ["0.256", "", told]
    assert rows["δ′"][1:] == ["0.0001 to 0.011", "at most 0.003"]
    assert rows["ε′ from sensitivities, classic RDP"] == ["2.197", "", "ε 2.197"]
    assert rows["ε′ at least, Clopper–Pearson"] == ["0.372", "", "ε 1.313"]
    assert rows["Yeom advantage"] == ["0.042", "0.030 to 0.053", "e^ε − 1 = 8, of pure ε"]
    assert rows["accuracy"][0] == "10.0% → 88.1%"


@pytest.mark.parametrize(
    ("name", "array", "message"),
    [
        ("noise_stds", None, "no array 'noise_stds'"),
        ("worlds", np.ones(3, bool), "log_odds are .* for worlds"),
        ("sensitivities", np.ones((TRIALS, 2)), "sensitivities are"),
        ("log_odds", np.ones(TRIALS), "log_odds are"),
    ],
)
def test_a_transcript_that_does_not_fit_is_refused(report, transcript, name, array, message):
    arrays = {key: value for key, value in transcript.items() if key != name}
    if array is not None:
        arrays[name] = array
    with pytest.raises(InputError, match=message):
        render_html(report, arrays)


BUDGET = {
    "stop_at": 1.4,
    "stop_at_delta": DELTA,
    "delta": DELTA,
    "accountant": "pld",
    "vantage": "participant",
    "rounds_planned": 40,
    "rounds_run": ROUNDS,
    "stopped": True,
    "epsilon": {"server": None, "participant": 1.3134725502396565, "released-model": 1.3134},
    "spent": 1.3134725502396565,
    "epsilon_by_round": [1.3134725502396565 * i / ROUNDS for i in range(1, ROUNDS + 1)],
    "earlier_attempts": 0,
}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, "After 30 of 40 planned rounds a person's record has spent ε = 1.313"),
        ({}, "where privacy.stop-at = 1.400 left no room for another."),
        ({"stopped": False, "rounds_planned": 30}, ", within privacy.stop-at = 1.400."),
        ({"stopped": False, "stop_at": None, "stop_at_delta": None}, "; no limit was set."),
        ({"earlier_attempts": 7}, "Interrupted attempts had released 7 rounds before the first."),
        ({"delta": 0.1}, "at δ = 0.1 (accountant pld), where privacy.stop-at = 1.400 at δ = 0.01"),
    ],
    ids=str,
)
def test_the_budget_is_one_sentence_and_a_figure(changes, said, report, transcript):
    html = unescape(render_html({**report, "budget": BUDGET | changes}, transcript))
    assert said in html
    assert html.count("The running budget.") == 2  # the caption, and the figure's description
    assert ("privacy.stop-at = 1.4<" in html) == (not {"delta", "stop_at"} & set(changes))


@pytest.mark.usefixtures("wording_only")
def test_a_budget_without_a_finite_value_is_a_sentence_and_no_figure(report, transcript):
    endless = BUDGET | {"epsilon_by_round": [None] * ROUNDS, "spent": None}
    html = unescape(render_html({**report, "budget": endless}, transcript))
    assert "has spent ε = ∞ towards the vantage participant" in html
    assert "The running budget." not in html
    older = {name: value for name, value in report.items() if name != "budget"}
    assert "planned rounds a person" not in render_html(older, transcript)


@pytest.fixture
def report_of_all(report):
    """The same report with every vantage measured."""

    def place(bound, measured, within=True):
        return {
            "noise_multiplier": NOISE_MULTIPLIER if bound < 1 else 0.0,
            "epsilon": None if bound == 1 else 1.3,
            "rho_beta": 0.9,
            "rho_alpha": bound,
            "prediction": {"mu": MU, "advantage": bound},
            "empirical": {
                "advantage": measured,
                "advantage_interval": [measured - 0.05, min(1.0, measured + 0.05)],
                "within_bound": within,
                "near_prediction": True,
            },
            "note": f"a note on {bound}",
        }

    rows = {
        "server": place(1.0, 1.0),
        "participant": place(RHO_ALPHA, 0.25),
        "released-model": place(RHO_ALPHA, 0.41, within=False),
    }
    return report | {"vantages": rows}


def test_to_whom_comes_before_what_was_believed_and_has_a_figure(report_of_all, transcript):
    html = render_html(report_of_all, transcript)
    assert html.index("<h2>In short</h2>") < html.index("<h2>To whom</h2>")
    assert html.index("<h2>To whom</h2>") < html.index("What the adversary saw and believed")
    section = html.partition("<h2>To whom</h2>")[2].partition("<h2>")[0]
    assert section.count("<svg") == 1
    for words in ("No protection", "Within the limit", "Above the limit", "a note on 1.0", "0.410"):
        assert words in section


def test_the_terminal_has_a_line_for_every_measured_vantage(report, report_of_all):
    text = console_text(report_of_all)
    for vantage in ("server", "participant", "released-model"):
        assert f"advantage, {vantage}" in text
    assert "above the limit" in text
    assert "advantage, " not in console_text(report)


def test_certainty_is_drawn_and_not_divided_by(report_of_all, transcript):
    signs = np.where(transcript["worlds"], 1.0, -1.0)[:, None]
    certain = transcript | {"log_odds": np.full((TRIALS, ROUNDS), np.inf) * signs}
    certain["noise_stds"] = 0 * certain["noise_stds"]
    html = render_html(changed(report_of_all, "prediction.mu", None), certain)
    assert "Belief, round by round." in html
    assert "Final log-odds." not in html
