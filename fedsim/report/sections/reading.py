"""What the verdicts of a page mean, what the page does not say, and what its readers should ask."""

from collections.abc import Iterable

from fedsim.audits.results.verdicts import StateWords
from fedsim.report.document.blocks import Bullets, Part

LIMITS = (
    "That the model is anonymous, or that its release is approved. Both are legal questions (GDPR, "
    "Recital 26); the numbers are evidence on one part: can an adversary tell whether a record was "
    "used?",
    "Whether the software ran as configured, which the limits of theory assume.",
    "How well a person with several records is protected, where one record is the unit.",
    "Whether the model repeats texts, or records can be rebuilt without a list of candidates.",
    "What links with other data, breaches, or other releases about the same people add.",
)
MEASURED = "What other people, or other attacks, would have given."
NOT_MEASURED = "What an attack achieves: none was played."

QUESTIONS = (
    "Who operates the server, and do we trust that party?",
    "Which limit does our organisation accept?",
    "Which observers were tested by an attack? Should the others be tested too?",
    "What else was released about the same people?",
)
SECRET = "Does the real training use secret noise (privacy.noise-source = system)?"


def part(states: Iterable[StateWords], attacked: bool = True) -> Part:
    """Return the folded part for a reader who decides, such as a data-protection officer.

    Args:
        states: of the page's observers.
        attacked: whether an adversary was played.
    """
    meanings = dict.fromkeys(f"{state.text}: {state.means}." for state in states)
    unsaid = [LIMITS[0], MEASURED if attacked else NOT_MEASURED, *LIMITS[1:]]
    questions = [*QUESTIONS, SECRET] if attacked else QUESTIONS
    parts = [
        Part("What the verdicts mean", [Bullets(list(meanings))]),
        Part("What this does not say", [Bullets(unsaid)]),
        Part("What to ask", [Bullets(questions)]),
    ]
    return Part("Before you decide", parts, folded=True, anchor="before-you-decide")
