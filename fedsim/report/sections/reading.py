"""What the verdicts of a page mean, what the page does not say, and what its readers should ask."""

from collections.abc import Iterable

from fedsim.audits.results.verdicts import StateWords
from fedsim.report.document.blocks import Bullets, Part

THEORY = (
    "The limits of theory hold for every record, if the software ran as configured.",
    "If one record is the unit, a person with several records has less protection.",
)
MEASURED = "The measurements say nothing about other people or other attacks."
NOT_MEASURED = "No attack was measured."

LIMITS = (
    "This report does not say that the model is anonymous, or that its release is approved. Both "
    "are legal questions (GDPR, Recital 26). The numbers are evidence on one part of them: can an "
    "adversary tell whether a record was used?",
    "The report does not cover texts that the model repeats.",
    "It does not cover records that are reconstructed without a list of candidates.",
    "It does not cover links with other data, or breaches.",
    "It does not cover other releases about the same people. Their epsilons add up.",
)

QUESTIONS = (
    "Who operates the server, and do we trust that party?",
    "Which limit does our organisation accept?",
    "Which observers were tested by an attack? Should the others be tested too?",
    "What else was released about the same people?",
)
SECRET = "Does the real training use secret noise (privacy.noise-source = system)?"


def parts(states: Iterable[StateWords], attacked: bool = True) -> list[Part]:
    """Return the parts for a reader who decides, such as a data-protection officer.

    Args:
        states: of the page's observers.
        attacked: whether an adversary was played.
    """
    meanings = dict.fromkeys(f"{state.text}: {state.means}." for state in states)
    measured = MEASURED if attacked else NOT_MEASURED
    questions = [*QUESTIONS, SECRET] if attacked else QUESTIONS
    return [
        Part("What the verdicts mean", [Bullets(list(meanings))]),
        Part("What this does not say", [Bullets([LIMITS[0], measured, *THEORY, *LIMITS[1:]])]),
        Part("What to ask", [Bullets(questions)]),
    ]
