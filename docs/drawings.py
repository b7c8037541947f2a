"""Draws the pictures of the pages: python docs/drawings.py.

`DRAWINGS` names each file with the function that draws it. A drawing carries a title and a
description for those who do not see it, and follows the light or dark setting of its reader.
"""

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

ROOT = Path(__file__).parents[1]

STYLE = """
svg { font: 13px sans-serif }
.paper { fill: #fff } .frame { fill: #eef1f8; stroke: #5a6ea8 }
.seen { fill: #fff3d6; stroke: #96640a }
text { fill: #1c2230 } .bold { font-weight: bold } .quiet { fill: #4a5268 }
.line { fill: none; stroke: #5a6ea8; stroke-width: 1.5 } .thin { fill: none; stroke: #8a96bd }
.dot { fill: #5a6ea8 }
@media (prefers-color-scheme: dark) {
.paper { fill: #1e2129 } .frame { fill: #2b3145; stroke: #93a5dd }
.seen { fill: #443517; stroke: #e0b354 } text { fill: #eceff7 } .quiet { fill: #bcc4d8 }
.line { stroke: #93a5dd } .thin { stroke: #6f7ca6 } .dot { fill: #93a5dd }
}
"""
"""Kinds of boxes: `frame` for what acts, `seen` for a place where an adversary may sit."""

LINE = 18


@dataclass
class Drawing:
    """A picture of boxes, arrows and words, in pixels from the upper left corner.

    Attributes:
        width: of the picture.
        height: of the picture.
        title: one line, for those who do not see it.
        description: what it shows, for those who do not see it.
        parts: its SVG elements, in the order in which they are painted.
    """

    width: float
    height: float
    title: str
    description: str
    parts: list[str] = field(default_factory=list)

    def text(self, x: float, y: float, words: str, kind: str = "", anchor: str = "middle") -> None:
        """Write one line of words whose baseline is at y."""
        kind = f' class="{kind}"' if kind else ""
        self.parts.append(
            f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}"{kind}>{escape(words)}</text>'
        )

    def box(
        self,
        corner: tuple[float, float],
        size: tuple[float, float],
        lines: Sequence[str] = (),
        kind: str = "frame",
    ) -> None:
        """Draw a box with centred lines, the first of them bold."""
        (x, y), (width, height) = corner, size
        self.parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="5" '
            f'class="{kind}"/>'
        )
        first = y + height / 2 - LINE * (len(lines) - 1) / 2 + 5
        for place, words in enumerate(lines):
            self.text(x + width / 2, first + LINE * place, words, "" if place else "bold")

    def arrow(self, *points: tuple[float, float]) -> None:
        """Draw a line through points that ends in an arrow's head."""
        path = " L".join(f"{x:g} {y:g}" for x, y in points)
        self.parts.append(f'<path d="M{path}" class="line" marker-end="url(#head)"/>')

    def svg(self) -> str:
        """Return the picture as the text of an SVG file."""
        head = (
            '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
            'markerHeight="7" orient="auto"><path d="M0 0 L8 4 L0 8 z" class="dot"/></marker>'
            "</defs>"
        )
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width:g} '
                f'{self.height:g}" role="img" aria-labelledby="title desc">',
                f'<title id="title">{escape(self.title)}</title>',
                f'<desc id="desc">{escape(self.description)}</desc>',
                f"<style>{STYLE}</style>",
                head,
                f'<rect width="{self.width:g}" height="{self.height:g}" class="paper"/>',
                *self.parts,
                "</svg>\n",
            ]
        )


# --- The federation, the game, a round


def federation() -> Drawing:
    """Return who sends what to whom under central trust, and what each vantage point sees."""
    drawing = Drawing(
        870,
        400,
        "A federation with central trust, and what each vantage point sees",
        "Three clients each send the sum of their clipped gradients to the server. The server sees "
        "every sum without noise, adds noise, steps, and sends the new model to all clients. The "
        "curious participant, one of the clients, sees every noisy total. The recipient of the "
        "released model sees the last model alone.",
    )
    drawing.box((310, 20), (220, 62), ["server", "adds noise, takes a step"])
    for place, name in enumerate(["client 0", "client 1", "client 2, curious"]):
        x = 140 + 200 * place
        drawing.box((x, 210), (160, 62), [name, "its own records"])
        drawing.arrow((x + 60, 210), (345 + 60 * place, 84))
        drawing.arrow((375 + 60 * place, 84), (x + 100, 210))
    drawing.text(240, 132, "↑ sums of clipped gradients", "quiet", "end")
    drawing.text(240, 150, "↓ the model, with noise", "quiet", "end")
    drawing.box((680, 20), (160, 62), ["released model", "after the last round"])
    drawing.arrow((532, 51), (678, 51))
    seen = [
        ((20, 12), ["the server sees", "each client's sum,", "without noise"], "M220 51 L310 51"),
        (
            (510, 310),
            ["the participant sees", "every noisy total,", "and its own sum"],
            "M610 272 L610 310",
        ),
        (
            (660, 120),
            ["its recipient sees", "the first and the last", "model alone"],
            "M760 82 L760 120",
        ),
    ]
    for corner, lines, line in seen:
        drawing.box(corner, (200, 78), lines, "seen")
        drawing.parts.append(f'<path d="{line}" class="thin"/>')
    return drawing


def game() -> Drawing:
    """Return one trial of the identification game, and what many of them give."""
    drawing = Drawing(
        820,
        330,
        "The game: was this one person's record used?",
        "A coin decides whether the target record is in the training data (D) or not (D′). The "
        "federation trains. The adversary knows D, D′ and the algorithm, sees the messages of its "
        "vantage point, and answers D or D′. Over many trials fedsim counts the right answers and "
        "compares the advantage with the limit of theory.",
    )
    drawing.box((20, 85), (120, 62), ["a coin", "decides"])
    drawing.box((200, 30), (170, 62), ["D", "with the target record"])
    drawing.box((200, 140), (170, 62), ["D′", "without it"])
    drawing.arrow((140, 104), (198, 66))
    drawing.arrow((140, 128), (198, 166))
    drawing.box((430, 85), (150, 62), ["training", "k rounds with noise"])
    drawing.arrow((370, 66), (428, 104))
    drawing.arrow((370, 166), (428, 128))
    drawing.box((640, 85), (160, 62), ["adversary", "answers “D” or “D′”"], "seen")
    drawing.arrow((580, 116), (638, 116))
    drawing.text(610, 72, "what it sees", "quiet")
    drawing.text(720, 40, "knows D, D′ and", "quiet")
    drawing.text(720, 58, "the algorithm", "quiet")
    drawing.box(
        (200, 246),
        (380, 66),
        ["hundreds of trials", "advantage = 2 · (share of right answers) − 1"],
    )
    drawing.arrow((720, 147), (720, 279), (582, 279))
    drawing.text(40, 275, "0: a coin", "quiet", "start")
    drawing.text(40, 293, "1: certainty", "quiet", "start")
    return drawing


def a_round() -> Drawing:
    """Return one round of training, from the model to the next model and the belief."""
    drawing = Drawing(
        820,
        290,
        "One round: from the model to the next one, and to the adversary's belief",
        "At every client: one gradient for each record, clipped to length C, then summed. The "
        "server adds up the sums of all clients, adds noise with standard deviation z times C, and "
        "takes a step. The adversary compares the noisy total with the two totals that it expects, "
        "with and without the target record, and updates its belief.",
    )
    drawing.text(225, 24, "at every client", "bold")
    drawing.text(605, 24, "at the server", "bold")
    steps = [
        (20, 120, ["gradients", "one a record"]),
        (165, 120, ["clipping", "to length C"]),
        (310, 120, ["sum", "of the client"]),
        (465, 120, ["total", "of all clients"]),
        (610, 90, ["+ noise", "N(0, (zC)²)"]),
        (725, 75, ["step", "new model"]),
    ]
    for place, (x, width, lines) in enumerate(steps):
        drawing.box((x, 40), (width, 62), lines)
        if place:
            before, wide, _ = steps[place - 1]
            drawing.arrow((before + wide, 71), (x - 2, 71))
    drawing.arrow((762, 102), (762, 128), (80, 128), (80, 104))
    drawing.text(300, 146, "the model of the next round, sent to every client", "quiet")
    drawing.box(
        (425, 190),
        (375, 80),
        ["adversary", "Was the target in the total? It expects one total", "for D, one for D′."],
        "seen",
    )
    drawing.arrow((655, 102), (655, 188))
    drawing.box(
        (110, 190), (230, 80), ["belief", "which of both is likelier", "after every round so far"]
    )
    drawing.arrow((425, 230), (342, 230))
    return drawing


# --- The wings of the source

WINGS = {
    "adversaries": "what an attacker computes, and its statistics",
    "common": "files, seeds, devices, memory",
    "privacy": "theory: mechanisms, accountants, trust, noise",
    "configuration": "the configuration file, checked",
    "learning": "data sets; training with clipping per example",
    "game": "target, worlds, and who observes them",
    "federation": "messages, clients, server, runs, runtimes",
    "audits": "what a training proves: run, app, loop, recorded, live",
    "reports": "documents, figures, trackers, verification",
    "studies": "guarantees, choosing, sensitivity, attacks on models",
    "deployment": "the kit for machines, and its checks",
    "commands": "one function per question, and the command line",
}
"""In the order of imports, each with what it holds."""

ROLES = {
    "client": "fedsim.client_app",
    "server": "fedsim.server_app",
    "auditor": "fedsim.auditor_app",
}
"""The module that each process begins with; what none of them loads is the desk's."""

ROW, LEFT, WIDTH, TOP = 34, 150, 780, 40


def sources() -> dict[str, Path]:
    """Return the file of every module by its name."""
    paths = [path for folder in ("adversaries", "fedsim") for path in (ROOT / folder).rglob("*.py")]
    names = [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in paths]
    return {
        name.removesuffix(".__init__"): path
        for name, path in sorted(zip(names, paths, strict=True))
    }


def imported(path: Path, known: Mapping[str, Path]) -> Iterator[str]:
    """Yield the modules that a file imports, also within functions.

    Args:
        path: of the file.
        known: modules by name.
    """
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom) and node.module in known:
            inner = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from (name if name in known else str(node.module) for name in inner)


def wing(module: str) -> str:
    """Return the wing of a module, "" for what lies at the root.

    Args:
        module: its name.
    """
    first, *rest = module.split(".")
    name = first if first == "adversaries" else (rest or [""])[0]
    return name if name in WINGS else ""


def loaded(begin: str, imports: Mapping[str, set[str]]) -> set[str]:
    """Return the wings of everything that a process can load.

    Args:
        begin: the module that it begins with.
        imports: of each module.
    """
    seen: set[str] = set()
    ahead = [begin]
    while ahead:
        if (name := ahead.pop()) not in seen:
            seen.add(name)
            ahead += imports[name]
    return {wing(name) for name in seen}


def architecture() -> Drawing:
    """Return a row for each wing, with the machines that load something of it.

    An arc leads to each wing that a wing imports and that none of its other imports leads to.
    """
    known = sources()
    imports = {name: set(imported(path, known)) for name, path in known.items()}
    order = list(WINGS)
    direct: dict[str, set[str]] = {name: set() for name in order}
    for module, others in imports.items():
        if wing(module):
            direct[wing(module)] |= {wing(other) for other in others} - {"", wing(module)}
    reach: dict[str, set[str]] = {}
    for name in order:
        reach[name] = direct[name].union(*(reach[other] for other in direct[name]))
    # Only what no other import leads to: the rest follows.
    nearest = {
        name: sorted(direct[name] - set().union(*(reach[other] for other in direct[name])))
        for name in order
    }
    roles = {role: loaded(begin, imports) for role, begin in ROLES.items()}
    return _wings(order, nearest, roles)


def _wings(
    order: list[str], nearest: Mapping[str, list[str]], roles: Mapping[str, set[str]]
) -> Drawing:
    drawing = Drawing(
        WIDTH,
        TOP + ROW * len(order) + 12,
        "The wings of fedsim: each imports only from those below it",
        "From the top: "
        + "; ".join(f"{name} ({WINGS[name]})" for name in reversed(order))
        + ". "
        + " ".join(
            f"Of these the {role} loads {', '.join(name for name in order if name in inside)}."
            for role, inside in roles.items()
        ),
    )
    at = {name: TOP + ROW * (len(order) - 1 - place) for place, name in enumerate(order)}
    columns = {role: 600 + 62 * place for place, role in enumerate(roles)}
    for role, x in columns.items():
        drawing.text(x, 24, role, "quiet")
    for name, y in at.items():
        middle = y + ROW / 2 - 2
        drawing.box((LEFT, y), (WIDTH - LEFT - 10, ROW - 4))
        drawing.text(LEFT + 10, middle + 5, name, "bold", "start")
        drawing.text(LEFT + 100, middle + 5, WINGS[name], "quiet", "start")
        drawing.parts += [
            f'<circle cx="{x}" cy="{middle:g}" r="6" class="dot"/>'
            for role, x in columns.items()
            if name in roles[role]
        ]
        drawing.parts += [_arc(middle, at[other] + ROW / 2 - 2) for other in nearest[name]]
    return drawing


def _arc(begin: float, end: float) -> str:
    """Return the line left of the rows from one height to another."""
    x = LEFT - 12 - (end - begin) / 4
    return (
        f'<path d="M{LEFT} {begin:g} C{x:g} {begin:g} {x:g} {end:g} {LEFT} {end:g}" class="thin"/>'
    )


DRAWINGS = {
    "docs/explanation/architecture.svg": architecture,
    "docs/explanation/federation.svg": federation,
    "docs/explanation/game.svg": game,
    "docs/explanation/round.svg": a_round,
}
"""The file of each drawing, and the function that draws it."""


if __name__ == "__main__":
    for path, draw in DRAWINGS.items():
        (ROOT / path).write_text(draw().svg(), encoding="utf-8")
