"""Navigation of a page: anchors, a list of contents, and explanations of terms."""

import re
from collections.abc import Collection
from dataclasses import dataclass

from markupsafe import Markup, escape

PIECE = re.compile(
    r"(?P<summary><summary>)?"
    r"<(?P<level>h[2-4])(?: id=\"(?P<id>[^\"]*)\")?>(?P<title>.*?)</(?P=level)>"
    r"|<div class=\"(?P<region>table|scroll)\">",
    re.S,
)
TAG = re.compile(r"<[^>]*>")
FEWEST = 3
NAMES = {"table": "Table", "scroll": "Figure"}


@dataclass(frozen=True)
class _Heading:
    level: int
    anchor: str
    title: str


def outlined(page: str) -> str:
    """Return a page whose headings have anchors and a list, and whose regions have names.

    An anchor consists of the heading's words. The keyboard reaches and scrolls regions that may be
    wider than the screen.
    """
    headings: list[_Heading] = []
    counts = dict.fromkeys(NAMES, 0)
    taken = set(re.findall(r'\bid="([^"]*)"', page))

    def finish(piece: re.Match[str]) -> str:
        if region := piece["region"]:
            counts[region] += 1
            where = f": {_text(headings[-1].title)}" if headings else ""
            label = escape(f"{NAMES[region]} {counts[region]}{where}")
            return f'<div class="{region}" role="region" tabindex="0" aria-label="{label}">'
        tag, title = piece["level"], piece["title"]
        anchor = piece["id"] or _anchor(title, taken)
        headings.append(_Heading(int(tag[1]), anchor, title))
        # A link in a summary would take the click that unfolds it.
        if piece["summary"]:
            return f'<summary><{tag} id="{anchor}">{title}</{tag}>'
        link = Markup(' <a class="anchor" href="#{}" aria-label="Link to “{}”">#</a>').format(
            anchor, _text(title)
        )
        return f'<{tag} id="{anchor}">{title}{link}</{tag}>'

    body = PIECE.sub(finish, page)
    return body.replace("<!-- contents -->", _contents(headings), 1)


def _contents(headings: list[_Heading]) -> str:
    if len(headings) < FEWEST:
        return ""
    entries = [
        Markup('<li class="level-{}"><a href="#{}">{}</a></li>').format(
            heading.level, heading.anchor, Markup(heading.title)
        )
        for heading in headings
        if heading.level < 4
    ]
    listed = "\n".join(entries)
    return (
        '<nav class="contents" aria-label="Contents">\n<details>\n<summary>Contents</summary>\n'
        f"<ul>\n{listed}\n</ul>\n</details>\n</nav>"
    )


def _anchor(title: str, taken: set[str]) -> str:
    """Return an anchor that no element of the page has, and take it."""
    words = re.sub(r"[^\w]+", "-", _text(title).lower()).strip("-") or "section"
    anchor, count = words, 1
    while anchor in taken:
        count += 1
        anchor = f"{words}-{count}"
    taken.add(anchor)
    return anchor


def _text(title: str) -> str:
    return Markup(TAG.sub("", title)).unescape().strip()


@dataclass(frozen=True)
class Term:
    """A word or symbol that not every reader knows.

    Attributes:
        slug: its anchor's, behind "term-".
        forms: a regular expression of what stands for it in a text.
    """

    slug: str
    symbol: str
    forms: str
    meaning: str


TERMS = (
    Term(
        "epsilon",
        "ε (epsilon)",
        r"ε(?!′)|\b[Ee]psilon\b",
        "The strength of differential privacy. One record, or one client's data if that is the "
        "unit, can make any outcome more likely, but at most e^ε times, plus δ. A smaller ε "
        "protects more.",
    ),
    Term(
        "delta",
        "δ (delta)",
        r"δ(?!′)|\bdelta\b",
        "A small extra: the probability of an outcome may exceed the limit set by ε, by up to δ.",
    ),
    Term(
        "epsilon-prime",
        "ε′",
        r"ε′",
        "An ε computed from what the adversary achieved. It is compared with the ε of theory.",
    ),
    Term(
        "rho-beta",
        "ρβ",
        r"ρβ",
        "The bound on belief. From even odds, the adversary's belief that one person's record was "
        "used stays below it, except in a small, stated share of trainings.",
    ),
    Term(
        "rho-alpha",
        "ρα",
        r"ρα",
        "The bound on the advantage: twice the largest share of right answers, minus one.",
    ),
    Term(
        "delta-prime",
        "δ′",
        r"δ′",
        "The measured share of trials with the record in which the adversary's belief exceeded ρβ.",
    ),
    Term(
        "advantage",
        "advantage",
        r"\b[Aa]dvantage\b",
        "Twice the share of right answers, minus one. 0: no better than a coin. 1: always right.",
    ),
    Term(
        "belief",
        "belief",
        r"\b[Bb]eliefs?\b",
        "How sure the adversary is, after all it saw, that the target record was used.",
    ),
    Term(
        "neighbours",
        "D, D′",
        r"\bD′|\bD\b(?!P)",
        "D is the training data with the target record. D′ is the same data without it, or with "
        "another record in its place.",
    ),
    Term(
        "mu",
        "μ",
        r"μ",
        "The change that the target causes in everything released, in standard deviations of the "
        "noise.",
    ),
    Term(
        "noise-multiplier",
        "noise multiplier",
        r"\b[Nn]oise multiplier\b",
        "The standard deviation of the noise, divided by the largest change of a sum that one "
        "person can cause.",
    ),
    Term(
        "local-sensitivity",
        "local sensitivity, LS",
        r"\b[Ll]ocal sensitivity\b|\bLS\b",
        "How much the target changes the sum of a round. Noise is usually scaled to the largest "
        "change that any record could cause.",
    ),
    Term(
        "vantage",
        "vantage point",
        r"\b[Vv]antage points?\b",
        "What the adversary sees: the server's messages, a participant's, or the released model "
        "alone.",
    ),
    Term(
        "majority-class",
        "majority class",
        r"\b[Mm]ajority class\b",
        "The most frequent class. A model that always names it reaches this accuracy without "
        "learning anything.",
    ),
    Term(
        "recall",
        "recall",
        r"\b[Rr]ecalls?\b",
        "The share of a class's records that the model recognises.",
    ),
    Term(
        "balanced-accuracy",
        "balanced accuracy",
        r"\b[Bb]alanced accuracy\b",
        "The mean of the recalls of all classes: each class counts the same, however rare it is.",
    ),
    Term(
        "auc",
        "AUC",
        r"\bAUC\b",
        "How often the model scores a record of a class above a record of another class. 0.5 is "
        "guessing, 1 is perfect.",
    ),
    Term(
        "canary",
        "canary",
        r"\b[Cc]anar(?:y|ies)\b",
        "A test record or gradient. A coin decides whether a training uses it, and the audit looks "
        "for it afterwards.",
    ),
)

TOKEN = re.compile(r"<(svg|style|title|code)\b.*?</\1>|<(?P<end>/?)(?P<tag>\w*)[^>]*>", re.S)
LINKED = "εδρμ"
"""What stands for a term begins with one of them where it gets a link: symbols, not plain words."""

UNLINKED = frozenset({"a", "h1", "h2", "h3", "h4", "h5", "h6", "summary", "th"})
"""Elements whose text is no place for a link to a term."""

FORMS = re.compile("|".join(f"(?P<t{place}>{term.forms})" for place, term in enumerate(TERMS)))
SUBSCRIPT = re.compile("ρ([αβ])")


def explained(page: str) -> str:
    """Return a page whose terms are explained at its end, symbols linked where each first stands.

    ρα and ρβ get the paper's subscripts everywhere.
    """
    head, main, body = page.partition("<main")
    terms: dict[Term, bool] = {}
    parts, done, inside = [], 0, 0
    for token in TOKEN.finditer(body):
        text, done = body[done : token.start()], token.end()
        # Most of a page's tags have nothing between them.
        parts += [_typeset(_linked(text, terms, inside == 0)) if text.strip() else text, token[0]]
        if token["tag"] in UNLINKED:
            inside += -1 if token["end"] else 1
    parts.append(body[done:])
    text = "".join(parts).replace("<!-- terms -->", _section(terms) if terms else "")
    return _outside_tags(head) + main + text


def _linked(text: str, terms: dict[Term, bool], linkable: bool) -> str:
    """Return a text with a link at each symbol that has no link in an earlier text of the page."""

    def link(form: re.Match[str]) -> str:
        term = TERMS[int(str(form.lastgroup)[1:])]
        linked = terms.setdefault(term, False)
        if linked or not linkable or form[0][0] not in LINKED:
            return form[0]
        terms[term] = True
        return f'<a class="term" href="#term-{term.slug}">{form[0]}</a>'

    return FORMS.sub(link, text)


def _section(terms: Collection[Term]) -> str:
    listed = [
        Markup('<dt id="term-{}">{}</dt><dd>{}</dd>').format(term.slug, term.symbol, term.meaning)
        for term in TERMS
        if term in terms
    ]
    entries = _typeset("\n".join(listed))
    return f'<section class="terms">\n<h2>Terms</h2>\n<dl>\n{entries}\n</dl>\n</section>'


def _outside_tags(page: str) -> str:
    parts, done = [], 0
    for token in TOKEN.finditer(page):
        parts += [_typeset(page[done : token.start()]), token[0]]
        done = token.end()
    return "".join([*parts, page[done:]])


def _typeset(text: str) -> str:
    return SUBSCRIPT.sub(r"ρ<sub>\1</sub>", text)
