"""The page and the summary of real runs: what each kind says of itself, and what it draws."""

import re
from dataclasses import replace
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest
from rich.console import Console

from fedsim.config import flatten
from fedsim.pages.blocks import Table
from fedsim.pages.wording import number, percent
from fedsim.report.page import Pictures, render_html, write_figures
from fedsim.report.sections import lower_bounds
from fedsim.report.sections.facts import TITLES
from fedsim.report.summary import summary
from fedsim.results.report import decode, encode

from .conftest import KINDS

pytestmark = pytest.mark.figures
VOID, CELLS = {"meta", "img"}, {"th", "td", "dt", "dd", "small"}


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


class Undrawn(Pictures):
    """No figures, which take nearly all of the time, where only the words matter."""

    drawn = {}  # noqa: RUF012


def told(report):
    """The words of the page without its contents and the appendix that lists report.json."""
    html = re.sub("<nav.*?</nav>", "", render_html(report, Undrawn(report, {})), flags=re.S)
    return Page(html.partition('<details id="values">')[0] + "</main></body></html>").words


def shown(report):
    """What the terminal shows, on one line."""
    console = Console(width=140)
    with console.capture() as capture:
        console.print(summary(report))
    return capture.get()


def changed(report, path, value):
    """A copy of the report with the value at one dotted path replaced."""
    values = encode(report)
    *parents, last = path.split(".")
    table = values
    for parent in parents:
        table = table[parent]
    table[last] = value
    return decode(values)


@pytest.fixture
def report(written):
    return written("central").report


@pytest.fixture(scope="session")
def drawn(written):
    """Return a function that draws the figures of a kind of run once."""
    found = {}

    def draw(kind):
        if kind not in found:
            found[kind] = Pictures(written(kind).report, written(kind).transcript)
            assert found[kind].drawn
        return found[kind]

    return draw


@pytest.fixture(scope="session")
def html(written, drawn):
    return render_html(written("central").report, drawn("central"))


# Every kind of run


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_run_has_a_page_and_a_summary_without_gaps(kind, written):
    report = written(kind).report
    text, terminal = told(report), shown(report)
    for words in (text, terminal):
        assert not re.findall(r"\bnan\b|None(?!:| was computed)|\{\}|\[\]", words)
    for warning in report.warnings:
        assert warning in text
        assert text.index(warning) < text.index("In short")
        assert " ".join(warning.split()) in " ".join(terminal.split())
    assert report.mechanism.dp_guarantee == ("DP guarantee for everything released" in text)
    assert report.mechanism.dp_guarantee or "not a DP guarantee" in text or "no DP" in text


FIGURES = {"belief", "log-odds", "advantage", "sensitivity", "utility"}


@pytest.mark.parametrize(
    ("kind", "others"),
    [
        ("central", set()),
        ("local", {"to-whom"}),
        ("bayesian", {"bayesian"}),
        ("one run", {"one-run"}),
        ("crafted", {"poison"}),
        ("sampled", {"budget"}),
    ],
)
def test_a_run_draws_what_it_measured(kind, others, drawn):
    assert FIGURES | others <= set(drawn(kind).figures)


# The page


def test_ids_are_unique_and_references_lead_somewhere(html):
    page = Page(html)
    assert len(set(page.ids)) == len(page.ids)
    references = {
        reference
        for name, value in page.attributes
        for reference in re.findall(r"url\(#([^)]+)\)", value or "")
        + ([value[1:]] if name.endswith("href") else [])
    }
    assert references
    assert references <= set(page.ids)


def test_the_page_needs_nothing_but_itself(html):
    assert "http" not in html
    assert "@import" not in html
    assert not {"script", "link", "iframe", "object"} & set(Page(html).tags)


def test_every_figure_has_a_text_alternative(html):
    page = Page(html)
    drawn, said = page.tags.count("svg"), html.count('<p class="unvarying">')
    assert html.count('<svg role="img"') == drawn
    assert drawn + said == page.tags.count("figure") >= len(FIGURES)
    # What is seen, and the numbers behind it.
    assert re.search('aria-label="Belief, round by round. trained on D from [0-9.]+ to ', html)
    assert html.count("The numbers behind this figure") == drawn


def test_what_is_for_specialists_stands_folded_below_the_rest(report):
    first, *others = Undrawn(report, {}).sections
    html = render_html(report, Undrawn(report, {}, (replace(first, specialist=True), *others)))
    folded = re.search('<details id="specialists">.*?</details>', html, re.S)[0]
    assert re.findall("<h([23])", folded) == ["2", "3"]
    assert "In short" in folded
    assert html.index("Configuration <a") < html.index(folded) < html.index('<details id="values">')


def test_the_same_run_gives_the_same_page(written, drawn, html):
    assert html == render_html(written("central").report, drawn("central"))


def test_the_appendix_lists_every_value_of_the_report(report, html):
    appendix = Page(html).words.partition("Every value of report.json")[2]
    for name, value in flatten(encode(report)):
        assert name in appendix
        if isinstance(value, float):
            assert f"{value:.10g}" in appendix
    for mean in report.utility.loss.mean:
        assert f"{mean:.10g}" in appendix


def test_hostile_text_is_shown_and_never_obeyed(report):
    hostile = '<script>alert("x")</script>'
    for path in (
        *("name", "created", "trust", "device", "data.name", "challenge.measure"),
        *("bounds.accountant", "mechanism.dp_note", "versions.fedsim"),
        *("vantages.server.note", "empirical.lower_bounds.clopper_pearson.method"),
    ):
        report = changed(report, path, hostile)
    report = replace(report, warnings=[hostile])
    html = render_html(report, Undrawn(report, {}))
    page = Page(html)
    assert "script" not in page.tags
    assert hostile in page.text
    assert "<script" not in html


def test_rich_markup_in_a_name_is_shown_as_it_is(report):
    assert "[bold]loud[/bold]" in shown(replace(report, name="[bold]loud[/bold]"))


@pytest.mark.slow
def test_a_figure_too_large_for_svg_becomes_an_embedded_png(written, tmp_path, monkeypatch):
    run = written("central")
    monkeypatch.setattr("fedsim.pages.pictures.LARGEST_SVG", 1_000)
    pictures = Pictures(run.report, run.transcript)
    page = Page(render_html(run.report, pictures))
    sources = [value for name, value in page.attributes if name == "src"]
    assert sources
    assert all(source.startswith("data:image/png;base64,iVBOR") for source in sources)
    assert any(name == "alt" and "belief" in value for name, value in page.attributes)
    assert (tmp_path / "belief.png") in write_figures(pictures, tmp_path)
    assert (tmp_path / "belief.png").read_bytes().startswith(b"\x89PNG")


def test_figures_are_written_as_standalone_svg(drawn, tmp_path):
    paths = write_figures(drawn("central"), tmp_path / "new" / "figures")
    assert {path.stem for path in paths} == set(drawn("central").figures)
    for path in paths:
        assert path.suffix == ".svg"
        assert ElementTree.fromstring(path.read_text()).tag == "{http://www.w3.org/2000/svg}svg"


# What it says


def test_the_verdict_is_one_sentence_for_everybody(report):
    share = percent(report.empirical.wins / report.trials)
    most = percent((1 + report.bounds.rho_alpha) / 2)
    assert (
        "An adversary who took part in this federation and knew everything except whether this "
        f"one person's record was used answered that question correctly in {share} of "
        f"{report.trials} trials, where tossing a coin is right in 50%. Theory allows at most "
        f"{most}."
    ) in told(report)


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        ("server", "An adversary who ran the server of this federation"),
        ("server", "Theory sets no limit below 100%"),
        ("released model", "An adversary who saw only the released model"),
        ("replace", "except which of two people's records was used"),
        ("client", "except whether this one client's data were used"),
        ("copies", "except whether 2 copies of this one person's record were used"),
        ("crafted", "except whether 2 copies of a record that was crafted for the audit were used"),
        ("gradient", "except whether a gradient that was crafted for the audit was used"),
        ("halves", "but not which of them was used, and was asked whether this one person's"),
        ("pac", "differential privacy sets no limit here"),
    ],
)
def test_the_verdict_names_the_adversary_and_the_secret(kind, sentence, written):
    assert sentence in told(written(kind).report)


@pytest.mark.parametrize(
    ("kind", "label"),
    [
        ("central", "Experiment: noise is reproducible, not a DP guarantee."),
        ("local sensitivity", "Measurement, not a DP guarantee."),
        ("unclipped", "Gradients are not clipped: no DP guarantee."),
        ("pac", "PAC noise, not a DP guarantee."),
        ("oracle", "Oracle audit, not a DP guarantee."),
        ("distributed", "Simulated secure aggregation, not a DP guarantee."),
        ("bayesian", "Gradient distances were released: not a DP guarantee."),
        ("local", "An experiment on these people, not one release"),
    ],
)
def test_what_is_no_guarantee_is_labelled_on_the_page_and_in_the_terminal(kind, label, written):
    assert label in told(written(kind).report)
    assert label in shown(written(kind).report)
    others = {"central": "local"}.get(kind, "central")
    assert label not in told(written(others).report)


@pytest.mark.parametrize(
    ("kind", "sentences"),
    [
        ("central", ["In each of 3 rounds every record took part, in one step."]),
        (
            "sampled",
            [
                "every record took part with probability 0.5, by itself (Poisson sampling)",
                "· sampling rate 0.5",
                "the signal-to-noise ratio were every step unsampled",
                "(the game played again",
                "each sampled step at the trial's root mean square ratio",
            ],
        ),
        ("sampled, replace", ["None: where replaced records are sampled"]),
        (
            "local steps",
            [
                "every client took 2 noisy steps on a model of its own: 6 noisy steps are",
                "the bounds grant every vantage all of these steps",
                "describes the score of a linearised attack and is not bounded",
                "of the linearised attack; its score follows",
                "Local learning rate",
            ],
        ),
        (
            "client",
            [
                "with all 8 records of client",
                "on the neighbouring D′, where it has none",
                "for 1 epoch in one batch, and sent how far it came, clipped as a whole",
                "Unit of privacy all data of one client",
                "It asks about single records, which the bounds are not about.",
            ],
        ),
        ("gradient", ["on the data D with the challenge gradient"]),
        ("crafted", ["The target was crafted to be noticed"]),
        (
            "server",
            ["∞ (no noise hides the record at this vantage)", "No protection.", "∞ (no noise)"],
        ),
        (
            "unclipped",
            [
                "∞ (gradients are not clipped: nothing bounds what one record can",
                "No guarantee",
                "Without clipping nothing sets it a limit.",
                "Differential privacy sets no limit here",
            ],
        ),
        ("oracle", ["computed by the auditor, from the noise that was drawn"]),
        ("local sensitivity", ["A tautology here"]),
        ("bayesian", ["in every round; γ = ", "no guarantee for outliers"]),
        ("halves", ["Naming which of the"]),
        ("one training", ["One training has no statistics", "adversary right? –"]),
        ("few trials", ["No finding yet: by 2 trials the adversary may be right in anything from"]),
        ("one run", ["The canaries of one trial prove", "(one-run f-DP bound); claimed is ε ="]),
        (
            "budget",
            ["After 1 of 3 planned rounds", "privacy.stop-at = 1.500 left no room for another"],
        ),
    ],
)
def test_what_was_special_is_explained_there_and_nowhere_else(kind, sentences, written):
    text, plain = told(written(kind).report), told(written("central").report)
    for sentence in sentences:
        assert sentence in text, sentence
        assert kind == "central" or sentence not in plain, sentence


def test_where_no_limit_is_set_nothing_is_held_to_one(written):
    unclipped = told(written("unclipped").report)
    for words in ("How often was it surer", "may be passed, but", "is slack", "ε ≤ ∞"):
        assert words not in unclipped, words
    local = told(written("local steps").report)
    surer = local.partition("How often was it surer than ρβ?")[2].partition("How much privacy")[0]
    assert "Compatible with the limit" not in surer
    client = told(written("client").report)
    assert "challenge record" not in client
    assert "person's record" not in client


def test_one_training_has_no_rates_in_the_terminal_either(written):
    terminal = shown(written("one training").report)
    for name in ("advantage", "δ′"):
        assert re.search(rf"│ {name} +│ +– │ +│", terminal)


def test_the_audited_vantage_is_marked_and_all_that_were_measured_have_a_line(written):
    report = written("local").report
    text, terminal = told(report), shown(report)
    assert text.count("audited here") == 1
    assert text.index("In short") < text.index("To whom") < text.index("The bounds from theory")
    for vantage, row in report.vantages.items():
        assert f"advantage, {vantage}" in terminal
        assert row.note in text
    assert "advantage, " not in shown(written("central").report)


@pytest.mark.parametrize(
    ("interval", "words"),
    [
        ([-0.01, 0.01], "Compatible with the limit."),
        ([-0.16, -0.05], "Below the limit."),
        ([0.01, 0.17], "Above the limit, within chance."),
    ],
)
def test_the_interval_is_read_against_the_bound(report, interval, words):
    limit = report.bounds.rho_alpha
    ends = [limit + end for end in interval]
    html = render_html(changed(report, "empirical.advantage_interval", ends), Undrawn(report, {}))
    assert f"the limit ρα is {limit:.3f}. {words}" in Page(html).words
    assert 'class="verdict alarm"' not in html
    alarming = changed(report, "empirical.advantage_interval", ends)
    alarming = replace(alarming, alarms={"advantage": ""})
    assert 'class="verdict alarm"' in render_html(alarming, Undrawn(report, {}))


def test_a_lower_bound_above_theory_is_an_alarm_if_chance_does_not_explain_it(report):
    leading = report.empirical.headline.name
    limit = report.bounds.tight_epsilon
    path = f"empirical.lower_bounds.{leading}"
    report = changed(changed(report, f"{path}.epsilon", limit + 0.1), f"{path}.p_value", 0.031)
    report = changed(
        changed(report, "empirical.headline.epsilon", limit + 0.1), f"{path}.reason", None
    )
    assert "Above theory, within chance (p = 0.031)" in told(report)
    assert "It is above its limit, within what chance alone gives." in told(report)
    assert "above theory, within chance (p = 0.031)" in shown(report)
    report = replace(report, alarms={leading: "too much"})
    assert f"ε ≥ {limit + 0.1:.3f} ε ≤ {limit:.3f} Above theory." in told(report)


def test_lower_bounds_are_apart_by_whether_they_trust_the_noise(report):
    _, table = [b for b in lower_bounds.SECTION.words(report) if isinstance(b, Table)]
    grouped = {group.title: [line.name.text for line in group.lines] for group in table.groups}
    assert grouped[lower_bounds.TRUSTING] == [TITLES["privacy_profile"]]
    assert len(grouped[lower_bounds.MEASURED]) == len(report.empirical.lower_bounds) - 1
    assert "agrees with the one measured without it" in told(report)


def test_a_lower_bound_that_says_nothing_says_why(written):
    refused = [
        bound.reason
        for bound in written("pairs").report.empirical.lower_bounds.values()
        if bound.reason
    ]
    assert refused
    for reason in refused:
        assert f"Says nothing here: {reason}." in told(written("pairs").report)


def test_an_epsilon_is_only_compared_with_one_of_the_same_accounting(report):
    classic = number(report.empirical.epsilon.sensitivity)
    assert f"from sensitivities, classic RDP {classic} –" in told(report)
    same = changed(report, "bounds.accountant", "rdp-classic")
    limit = number(report.bounds.epsilon)
    assert f"from sensitivities, classic RDP {classic} {limit}" in told(same)


def test_the_summary_sets_every_measure_beside_its_limit(report):
    rows = {
        line.split("│")[1].strip(): [cell.strip() for cell in line.split("│")[2:-1]]
        for line in shown(report).splitlines()
        if "│" in line
    }
    measured, bounds = report.empirical, report.bounds
    low, high = map(number, measured.advantage_interval)
    limit = f"ρα {bounds.rho_alpha:.3f}"
    assert rows["advantage"] == [number(measured.advantage), f"{low} to {high}", limit]
    assert rows["advantage predicted"][0] == number(report.prediction.advantage)
    assert rows["δ′"][2] == f"at most {number(bounds.tail_limit)}"
    assert rows["accuracy"][0].endswith(percent(report.utility.accuracy.mean[-1]))
    yeom = report.membership_inference["yeom"]
    assert rows["Yeom advantage"][0] == number(yeom.advantage)


def test_every_number_that_was_measured_or_follows_from_theory_is_in_the_text(report):
    text = told(report)
    elsewhere = re.compile("sensitivity|confidence|delta$")  # in captions, or as they were given
    for table in ("empirical", "bounds", "prediction"):
        for name, value in encode(report)[table].items():
            if isinstance(value, float) and not elsewhere.match(name):
                assert {number(value), percent(value)} & set(re.findall(r"[^\s;:,()]+", text)), name


def test_without_noise_certainty_is_drawn_and_not_divided_by(drawn):
    assert "belief" in drawn("server").figures
    assert "log-odds" not in drawn("server").figures


def test_sampled_steps_have_no_gaussian_curve(drawn, written):
    captions = {kind: drawn(kind).figures["log-odds"].caption for kind in ("sampled", "central")}
    assert "played again with the recorded gradient norms" in captions["sampled"]
    assert "theory's, not a fit (μ" in captions["central"]


def test_a_budget_that_is_spent_from_the_first_round_on_is_a_sentence_and_no_figure(drawn, written):
    assert "has spent ε = ∞ towards the vantage server" in told(written("server").report)
    assert "budget" not in drawn("server").figures


def test_a_run_whose_clients_protect_their_records_has_no_attacks_by_losses(report):
    withheld = replace(report, membership_inference={}, membership_missing="The clients protect")
    assert "Does the final model betray its members?" in told(report)
    assert "Does the final model betray its members?" not in told(withheld)
    assert "Yeom advantage" not in shown(withheld)
