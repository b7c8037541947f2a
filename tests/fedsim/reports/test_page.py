"""The page and the summary of real runs: what each kind says of itself, and what it draws."""

import re
from copy import deepcopy
from dataclasses import replace
from html.parser import HTMLParser
from typing import get_args

import pytest
from rich.console import Console

from adversaries.errors import InputError
from fedsim.audits.judgement.claim import Finding
from fedsim.audits.results.verdicts import State
from fedsim.audits.run.report import accounted, decode
from fedsim.configuration import Config, from_run_config, to_run_config
from fedsim.reports.document import terminal
from fedsim.reports.document.blocks import Figure, Html
from fedsim.reports.document.html import fragment
from fedsim.reports.document.wording import number, percent
from fedsim.reports.page import Pictures, render_html
from fedsim.reports.sections import every_audit, first, section
from fedsim.reports.sections.first import About
from fedsim.studies.choose import rule
from tests.findings import doubts

from .conftest import KINDS, SIZE

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


def words_of(report):
    """The words of the page without its contents and the terms at its end."""
    html = re.sub("<nav.*?</nav>", "", render_html(report, Undrawn(report, {})), flags=re.S)
    return Page(html.partition('<details class="terms"')[0] + "</main></body></html>").words


def shown(report, width=140, verbose=False):
    """What the terminal shows."""
    console = Console(width=width)
    with console.capture() as capture:
        console.print(terminal.told(first.told(report, About()), verbose=verbose))
    return capture.get()


def changed(report, path, value):
    """A copy of the report with the value at one dotted path replaced."""
    values = deepcopy(report.report)
    *parents, last = path.split(".")
    table = values
    for parent in parents:
        table = table[parent]
    table[last] = value
    return decode(values)


def _with(report, **details):
    return replace(report, details=replace(report.details, **details))


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
    text, terminal = words_of(report), shown(report, verbose=True)
    for words in (text, terminal):
        assert not re.findall(r"\bnan\b|None(?!:| was computed)|\{\}|\[\]", words)
    for warning in doubts(report):
        assert warning in text
        assert text.index(warning) < text.index("Who is the target?")
    assert len(shown(report, width=80).splitlines()) <= 19, kind  # and the report's path
    assert report.details.mechanism.dp_guarantee == ("DP guarantee for everything released" in text)
    assert report.details.mechanism.dp_guarantee or "protects no one" in text or "no DP" in text


FIGURES = {"belief", "log-odds", "sensitivity", "utility"}


@pytest.mark.parametrize(
    ("kind", "others"),
    [
        ("central", set()),
        ("one run", {"one-run"}),
        ("crafted", {"poison"}),
        ("sampled", {"budget"}),
    ],
)
def test_a_run_draws_what_it_measured(kind, others, drawn):
    assert FIGURES | others <= set(drawn(kind).drawn)


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


def test_every_figure_has_a_text_alternative(html, report):
    page = Page(html)
    drawn = page.tags.count("svg")
    bars = html.count('<svg role="img" class="bars"')
    assert html.count('<svg role="img"') == drawn
    assert bars == len(report.rows.values()) + 1  # and the axis
    assert drawn - bars == page.tags.count("figure") - 1 >= len(FIGURES)
    # What is seen, and the numbers behind it.
    assert re.search('aria-label="Belief, round by round. trained on D from [0-9.]+ to ', html)
    assert 'aria-label="Server: Must be trusted; theory sets no limit; not measured: ' in html
    assert html.count("The numbers behind this figure") == drawn - bars


def test_the_page_explains_its_verdicts_and_says_what_it_does_not_say(html, report):
    for words in (
        "GDPR, Recital 26",
        "Who operates the server",
        "What other people, or other attacks",
    ):
        assert words in html
    for each in report.rows.values():
        words = every_audit.state_words(report, each)
        assert f"<li>{words.text}: {words.means}.</li>" in html


def test_hostile_text_is_shown_and_never_obeyed(report):
    hostile = '<script>alert("x")</script>'
    for path in (
        *("name", "versions.fedsim", "rows.server.limit.note"),
        *("details.created", "details.trust", "details.device", "details.data.name"),
        *("details.challenge.measure", "details.bounds.accountant", "details.mechanism.dp_note"),
        "details.empirical.lower_bounds.clopper_pearson.method",
    ):
        report = changed(report, path, hostile)
    report = replace(report, findings=[Finding(hostile, severity="caution")])
    html = render_html(report, Undrawn(report, {}))
    page = Page(html)
    assert "script" not in page.tags
    assert hostile in page.text
    assert "<script" not in html


def test_rich_markup_in_a_name_is_shown_as_it_is(report):
    assert "[bold]loud[red]" in shown(replace(report, name="[bold]loud[red]"))


# What it says


def test_the_answer_says_who_was_right_how_often_and_what_theory_allows(report):
    low, high = (percent((1 + end) / 2) for end in report.attack.interval)
    share = percent(report.details.empirical.wins / report.details.trials)
    most = percent((1 + report.row.limit.rho_alpha) / 2)
    assert (
        "Could an adversary tell whether one person's record was used? "
        f"{report.details.trials} trials are too few to tell. A participant was right in {share} "
        f"({low[:-1]} to {high}) of them; guessing is right in 50%, and theory allows at most "
        f"{most}."
    ) in words_of(report)


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        ("server", "The operator of the server was right in"),
        ("server", "and theory sets no limit."),
        ("released model", "Someone who sees only the released model was right in"),
        ("replace", "tell whether one person's record or its replacement was used?"),
        ("client", "tell whether one client's data were used?"),
        ("crafted", "tell whether the crafted target was used?"),
        ("gradient", "tell whether the crafted target was used?"),
    ],
)
def test_the_answer_names_the_adversary_and_the_secret(kind, sentence, written):
    assert sentence in words_of(written(kind).report)


@pytest.mark.parametrize(
    ("kind", "label"),
    [
        ("central", "its noise comes from a seed and protects no one."),
        ("local sensitivity", "No DP guarantee: Noise was scaled to the local sensitivity"),
        ("unclipped", "No DP guarantee: Gradients are not clipped"),
        ("oracle", "No DP guarantee: This was an oracle audit: clients gave their noise"),
        ("distributed", "No DP guarantee: Secure aggregation was simulated: the server saw"),
        ("local", "models of these people were released: together they cost ε ="),
    ],
)
def test_what_is_no_guarantee_is_labelled_on_the_page_and_in_the_terminal(kind, label, written):
    assert label in words_of(written(kind).report)
    assert label in " ".join(shown(written(kind).report).split())
    others = {"central": "local"}.get(kind, "central")
    assert label not in words_of(written(others).report)


@pytest.mark.parametrize(
    ("kind", "sentences"),
    [
        (
            "sampled",
            [
                "require that it stays secret whether the target took part in a round",
                "· sampling rate 0.5",
                "the signal-to-noise ratio if no step were sampled",
                "(by simulation of the game",
            ],
        ),
        (
            "local steps",
            [
                "The bounds assume that every adversary sees all these steps",
                "With local steps, the belief is the score of an attack",
                "of the linearised attack, whose score follows",
            ],
        ),
        (
            "client",
            [
                "with all 8 records of client",
                "or on D′, where the client has no records",
                "Unit of privacy all data of one client",
                "with all its 8 records, is the target",
            ],
        ),
        ("gradient", ["on D with the target gradient"]),
        ("crafted", ["The target was crafted to be noticed"]),
        (
            "server",
            ["∞ (no noise hides the record at this vantage)"],
        ),
        (
            "unclipped",
            [
                "∞ (gradients are not clipped: nothing bounds what one record can",
                "No guarantee",
                "Something that theory needs is missing, such as clipping or secret noise.",
            ],
        ),
        ("one training", ["One training has no success rate", "Cannot tell"]),
        (
            "few trials",
            ["used? 2 trials are too few to tell"],
        ),
        ("one run", ["The canaries of one trial show", "one-run f-DP bound). The claim is ε ="]),
        (
            "budget",
            ["1 of 3 planned", "privacy.stop-at = 1.500, which left no room for another"],
        ),
    ],
)
def test_what_was_special_is_explained_there_and_nowhere_else(kind, sentences, written):
    text, plain = words_of(written(kind).report), words_of(written("central").report)
    for sentence in sentences:
        assert sentence in text, sentence
        assert sentence not in plain, sentence


def test_where_no_limit_is_set_nothing_is_held_to_one(written):
    unclipped = words_of(written("unclipped").report)
    for words in ("above ρβ", "passed in up to", "at most ∞", "theory allows at most"):
        assert words not in unclipped, words
    assert "above ρβ: " in words_of(written("local steps").report)
    client = words_of(written("client").report)
    assert "the target record" not in client
    assert "person's record" not in client


def test_the_audited_observer_is_marked_and_all_have_a_line(written):
    report = written("local").report
    text = words_of(report)
    assert text.count("audited here") == 1
    for row in report.rows.values():
        assert section.reading(report, row) in text


def test_a_lower_bound_above_theory_is_an_alarm_if_chance_does_not_explain_it(report):
    leading = report.details.empirical.leading
    limit = report.row.limit.epsilon
    path = f"details.empirical.lower_bounds.{leading}"
    report = changed(report, f"{path}.epsilon", limit + 0.1)
    report = changed(report, f"{path}.reason", None)
    assert "Above theory, within chance" in words_of(report)
    report = replace(report, findings=[Finding("too much", rule=leading)], alarms=1)
    assert f"{limit + 0.1:.3f} {limit:.3f} Above theory." in words_of(report)


def test_a_lower_bound_that_says_nothing_says_why(written):
    refused = [
        bound.reason
        for bound in written("sampled").report.details.empirical.lower_bounds.values()
        if bound.reason
    ]
    assert refused
    for reason in refused:
        assert f"No bound here: {reason}." in words_of(written("sampled").report)


def test_an_epsilon_is_only_compared_with_one_of_the_same_accounting(report):
    classic = number(report.details.empirical.epsilon.sensitivity)
    assert f"from sensitivities, classic RDP {classic} –" in words_of(report)
    same = changed(report, "details.bounds.accountant", "rdp-classic")
    limit = number(accounted(report).epsilon)
    assert f"from sensitivities, classic RDP {classic} {limit}" in words_of(same)


def test_every_number_that_was_measured_or_follows_from_theory_is_in_the_text(report):
    text = set(re.findall(r"[^\s;:,()]+", words_of(report)))
    elsewhere = re.compile("sensitivity|confidence|delta$|chance|detects")  # in captions, as given
    values, here = report.report, report.report["rows"][report.vantage]
    tables = [values["details"][name] for name in ("empirical", "bounds", "prediction")]
    for table in [*tables, here["limit"], here["attack"]]:
        for name, value in table.items():
            if isinstance(value, float) and not elsewhere.match(name):
                assert {number(value), percent(value)} & text, name


def test_a_figure_that_cannot_be_drawn_is_an_error_and_no_gap():
    class Broken:
        @property
        def picture(self):
            raise KeyError("no such series")

    figure = Figure("broken", Broken(), "Broken.", "")
    with pytest.raises(KeyError, match="no such series"):
        fragment([Html('{{ drawn("broken") }}', {}, {"broken": figure})])


def test_sampled_steps_have_no_gaussian_curve(drawn, written):
    captions = {kind: drawn(kind).drawn["log-odds"].caption for kind in ("sampled", "central")}
    assert "have no Gaussian prediction" in captions["sampled"]
    assert "Theory predicts the curves (μ" in captions["central"]


def test_a_budget_that_is_spent_from_the_first_round_on_is_a_sentence_and_no_figure(drawn, written):
    said = words_of(written("server").report)
    assert "ε spent towards the server at δ = 0.005 ∞" in said
    assert "budget" not in drawn("server").drawn


def test_a_run_whose_clients_protect_their_records_has_no_attacks_by_losses(report):
    withheld = _with(report, membership_inference={}, membership_missing="The clients protect")
    assert "Yeom: members are the records" in words_of(report)
    assert "Yeom: members are the records" not in words_of(withheld)
    assert "The clients protect" in words_of(withheld)
    assert "Yeom advantage" not in shown(withheld)


PIXELS = {"label": 3, "pixels": [[0, 255], [128, 0]]}
ROW = {
    "label": 1,
    "attributes": [
        {"name": "age", "value": "90", "other": "40", "share": 0.02},
        {"name": "job", "value": "cook", "other": "nurse", "share": 0.5},
    ],
}


def test_the_target_is_shown_where_its_data_are_public_and_else_why_not(report, written):
    def words(report, target):
        return Page(render_html(report, Undrawn(report, {}), About(target=target))).words

    html = render_html(report, Undrawn(report, {}), About(target=PIXELS))
    assert re.search('<img src="data:image/png;base64,[^"]+" alt="Record [0-9]+, a ', html)
    table = words(report, ROW)
    assert "age Unusual. 90 40 2.0%" in table
    assert "job cook nurse 50.0%" in table
    assert "The record is not shown, because this page may be handed on" in words(report, None)
    assert "all data of a client are the target" in words(written("client").report, None)
    assert "the target is not a person's record" in words(written("crafted").report, None)


def test_the_sign_off_says_who_answers_for_the_study_and_what_it_does_not_say(report):
    about = About("Which ε for triage?", "ab" * 32)
    text = Page(render_html(report, Undrawn(report, {}), about)).words
    for said in ("Purpose Which ε for triage?", "Author ____", "SHA-256 abababababababab…"):
        assert said in text
    assert "not stated (run.purpose)" in words_of(report)


# What is folded, and what is absent


def test_the_main_page_is_for_everybody_and_specialists_unfold_the_rest(written):
    html = _html(written("central").report)
    main, _, folded = html.partition('<details id="specialists">')
    assert {"Empirical ε′", "Membership inference", "Settings"} <= _headings(folded, 3)
    assert "Every observer in numbers" in _headings(main, 2)
    assert not _headings(folded, 3) & _headings(main, 2)


def test_the_first_screen_is_an_answer_a_figure_a_table_and_what_to_decide(written):
    for kind in ("central", "local", "server", "unclipped", "client", "sampled", "one training"):
        report = written(kind).report
        page = re.sub("<nav.*?</nav>", "", _html(report), flags=re.S)
        screen = page[page.index('<section class="verdict') :].partition("<h2")[0]
        screen += page.partition('class="first-told"')[2].partition("</section>")[0]
        words = re.sub("<[^>]+>", " ", re.sub("<svg.*?</svg>", "", screen, flags=re.S)).split()
        assert len(words) <= 150, (kind, len(words))
        folded = page.partition('<details id="gate">')[2]
        assert ("--fail-if" in folded, "--fail-if" in screen) == (True, False)
        assert "Release nothing of this run" in screen or "Do not release" in screen


def _headings(html, level):
    return set(re.findall(f'<h{level} id="[^"]*">([^<]*) <a', html))


def _html(report):
    return render_html(report, Undrawn(report, {}))


# An alarm


def test_a_contradicted_run_says_so_first_and_suggests_nothing_else(report):
    alarm = "The advantage is above its bound: it is at least 0.5. The noise is not as claimed."
    raised = Finding(alarm.removesuffix("."), rule="advantage")
    rows = report.rows | {report.vantage: replace(report.row, standing="contradicted")}
    wrong = replace(report, findings=[raised], alarms=1, rows=rows)
    text, terminal = words_of(wrong), shown(wrong, width=80)
    assert text.index("Contradicted. Do not rely on the limits below.") < text.index(alarm)
    assert terminal.splitlines()[2].startswith("ALARM: The advantage is above its bound")
    assert "1 alarm, 2 to decide." in terminal
    for words in ("with 95% probability", "fedsim choose", "too few to tell"):
        assert words not in terminal
        assert words not in text
    assert len(terminal.splitlines()) <= 19


def test_where_much_meets_the_rest_is_left_to_the_verbose_result(written):
    """Several alarms, cautions, and a worst-off client."""
    alarms = [Finding(f"Number {i} is above its bound. Look", rule=f"{i}") for i in range(6)]
    for kind in ("local", "distributed", "one run", "rehearsed without clipping"):
        report = written(kind).report
        worst = replace(report.row.limit.largest, rho_alpha=0.99)
        rows = {
            name: replace(row, limit=replace(row.limit, worst=worst))
            for name, row in report.rows.items()
        }
        wrong = replace(report, findings=alarms, alarms=6, rows=rows)
        lines = shown(wrong, width=80).splitlines()
        assert len(lines) <= 19, kind
        assert lines[2].startswith("ALARM: Number 0")
        ending = r"6 alarms, (\d|nothing) to decide\. More: add -v\. *"
        assert re.fullmatch(ending, lines[-1])
        everything = " ".join(shown(wrong, verbose=True).split())
        assert all(each.sentence in everything for each in alarms)
        assert "More:" not in everything


@pytest.mark.parametrize("kind", ["central", "sampled server", "unclipped", "server"])
def test_every_epsilon_stands_whole_on_a_narrow_terminal(kind, written):
    report = written(kind).report
    words = shown(report, width=60, verbose=True).split()
    for row in report.rows.values():
        assert every_audit.epsilon(row) in words


# The rows


def test_the_search_that_is_suggested_is_one_that_fedsim_choose_takes(written):
    """No noise protects from the server under central trust, so none is sought."""
    for kind in ("server", "central", "distributed", "local", "local sensitivity"):
        report = written(kind).report
        for vantage in (found.observer for found in report.rows.values()):
            words = first.choose(replace(report, vantage=vantage)).split()
            changed = KINDS[kind] | {"federation.vantage": vantage}
            scheme = from_run_config(to_run_config(Config()) | SIZE | changed)
            if words:
                rule.check_protectable(scheme)
                assert words[-1] == vantage
                assert 0 < float(words[4]) < 1
            else:
                with pytest.raises(InputError):
                    rule.check_protectable(scheme)


def test_a_lower_bound_has_its_condition(written):
    """A bound that assumes Gaussian noise is no proof about other noise."""
    for kind in ("central", "sampled", "one run"):
        report = written(kind).report
        for name, bound in report.details.empirical.lower_bounds.items():
            # A rate can be counted without knowing the noise.
            counted = not re.search("normal|Gaussian|mechanism|exact", bound.assumes)
            assert bool(section.condition(name)) == (bool(bound.assumes) and not counted)
        proven, condition = report.attack.epsilon_at_least, section.CONDITIONS
        said = f"{number(proven)}{condition.get(report.attack.estimator, '')}"
        assert (said.replace("if", " if", 1) in words_of(report)) == (proven > 0)


def test_only_what_lies_below_its_limit_is_good(written):
    for kind in ("central", "server", "unclipped", "one training", "local"):
        report = written(kind).report
        for found in report.rows.values():
            for state in get_args(State):
                if found.attack is None and state in ("below", "agrees"):
                    continue
                mark = every_audit.mark(report, replace(found, standing=state))
                assert (mark.kind == "good") == (state == "below")


def test_a_rehearsal_without_clipping_says_both_that_it_is_one_and_that_it_is_unclipped(written):
    report = written("rehearsed without clipping").report
    assert first.cautions(report)[0].title.startswith("No DP guarantee: Gradients are not clipped")
    assert first.REHEARSED in " ".join(shown(report, verbose=True).split())


def test_sampling_alone_limits_a_server_that_no_noise_hides_a_record_from(written):
    report = written("sampled server").report
    server = report.rows["server"]
    limit = 1 - (1 - 0.02) ** 3
    assert server.limit.rho_alpha == pytest.approx(limit, rel=1e-12)
    assert (server.standing, server.detects) == ("no-limit", None)
    page = words_of(report)
    assert "Sampling alone limits this adversary to 52.9% right answers" in page
    assert "always tell" not in page


def test_right_answers_count_a_tie_as_half(report):
    attack = replace(report.attack, advantage=0.075)
    rows = report.rows | {report.vantage: replace(report.row, attack=attack)}
    counts = replace(report.details.empirical, wins=15, ties=180)
    tied = replace(_with(report, empirical=counts), rows=rows)
    assert "right in 53.8% (" in first.answer(tied)
    assert "53.8% (" in shown(tied)


def test_a_model_is_judged_by_the_criterion_of_its_task(report):
    """Uneven classes lead with AUC; what does no better than a constant answer is said so."""
    uneven = replace(
        report.details.utility.measured,
        records=1000,
        majority=0.82,
        of_class=(820, 180),
        accuracy=0.82,
    )
    for area, learnt, words in (
        (0.645, True, "AUC 0.645 (0.500 for a constant answer; accuracy 82.0%, majority"),
        (0.51, False, "its AUC is 0.510 (0.464 to 0.556 at 95%), and a constant answer reaches"),
    ):
        measured = replace(uneven, area_under_curve=area)
        changed = _with(report, utility=replace(report.details.utility, measured=measured))
        assert words in words_of(changed)
        assert ("not shown to have learnt" in words_of(changed)) == (not learnt)
