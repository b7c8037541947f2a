"""A trained model as an entry of the public registry of differential-privacy deployments.

The entry follows OpenDP's registry, tier 3 of its schema. What only the owner knows is taken from
the owner: nothing is invented.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from adversaries.errors import InputError
from fedsim.audits.results.model_card import ModelCard, Privacy
from fedsim.config.federation import OWN
from fedsim.report.document.wording import counted, number, percent, span
from fedsim.report.model_card import risks_by_vantage
from fedsim.report.sections import risks as risk_section

Entry = Mapping[str, Any]

OWNERS = {
    "curator": "name of the party that publishes the model; several with semicolons",
    "region": "region that the data describe, or whose laws apply",
    "intended-use": "intended use of the model; run.purpose if it is stated",
    "author": "author of the entry; run.author if it is stated",
}
"""Facts that only the owner knows and that the registry requires, with their meaning."""

OPTIONAL = {
    "slug": "short name in the registry's addresses; the name of the run if left out",
    "publication-date": "YYYY-MM-DD; the day of the training if left out",
    "sector": "Technology, Healthcare, Education, Government, Energy or Finance",
    "data-domain": "data sets that are eligible for protection",
    "tuning": "how settings were chosen, and at what cost in privacy",
    "sources": "links to descriptions of the model",
}

SECTORS = ("Technology", "Healthcare", "Education", "Government", "Energy", "Finance")

ADJACENT = {
    "add-remove": "Two data sets are adjacent if one {unit} is missing from one of them.",
    "replace": "Two data sets are adjacent if one {unit} is replaced by another.",
}

UNITS = {"record": "record", "client": "client with all its records"}

ACTORS = {
    "server": "The server",
    "participant": "A participant",
    "released-model": "Someone who sees only the released model",
}

MECHANISMS = (
    "Gaussian mechanism on sums of clipped gradients or updates (DP-SGD in a Flower federation), "
    "by fedsim {version}. The noise generator takes its key from the operating system. Noise and "
    "sums are float64. Messages round them, to float32 or, with secure aggregation, to integers; "
    "the documentation describes what rounding gives away. A client refuses models that could "
    "switch clipping off. A client whose node has a state folder keeps its own ledger and budget. "
    "Timing channels are not covered."
)


def entry(card: ModelCard, author: str, alarms: int, own: Mapping[str, str]) -> Entry:
    if not card.privacy.guaranteed:
        raise InputError(
            f"'{card.name}' has no guarantee of differential privacy, so it does not belong in the "
            f"registry: {card.privacy.note}"
        )
    facts = _facts(card, author, own)
    return {
        "url_slug": facts["slug"],
        "status": "Draft",
        "tier": 3,
        "deployment": {
            "basic": {
                "name": card.name,
                "data_curators": [one.strip() for one in facts["curator"].split(";")],
                "description": _description(card, alarms),
                "intended_use": facts["intended-use"],
                "data_product_type": "Machine learning model",
                "data_product_region": facts["region"],
                "publication_date": facts["publication-date"],
                **({"data_product_sector": facts["sector"]} if "sector" in facts else {}),
            },
            **_protection(card, facts),
            "implementation": {
                "preprocessing_and_hyperparameter_tuning": facts.get(
                    "tuning", "Not stated by the curator."
                ),
                "mechanisms": MECHANISMS.format(version=card.fedsim),
                "justification": (
                    f"Gradients were clipped to {card.privacy.clipping_norm:g}. The noise "
                    f"multiplier was {card.privacy.noise_multiplier:.4g}, the sampling rate "
                    f"{card.privacy.sampling_rate:g}."
                ),
            },
            "administrative": {
                "notes": f"SHA-256 of the model's values: {card.sha256}",
                "registry_authors": [facts["author"]],
                **({"sources": facts["sources"]} if "sources" in facts else {}),
            },
        },
    }


UNPROTECTED = "The number of clients and of records, the configuration and the public schema."
IN_PUBLIC = "Accuracies on public records concern no protected data."


def _protection(card: ModelCard, facts: Mapping[str, str]) -> Entry:
    """Return the parts of the entry about the guarantee, its unit and its accounting."""
    privacy = card.privacy
    released = next(row for row in privacy.towards if row.vantage == "released-model")
    data = "the clients' own records" if card.data == OWN else f"records of '{card.data}'"
    domain = f"Data sets of {card.records:,} {data}, held by {card.clients} clients."
    actors = (
        f"{ACTORS[row.vantage]} sees {row.sees.removeprefix('sees ')} (epsilon "
        f"{number(next(iter(row.epsilon.values())))})."
        for row in privacy.towards
    )
    return {
        "dp_variant": {
            "variant_name": "Approximate DP",
            "data_domain": facts.get("data-domain", domain),
            "unprotected_quantities": " ".join([UNPROTECTED, *(card.uncovered or [IN_PUBLIC])]),
        },
        "privacy_loss": {
            "privacy_unit": privacy.unit,
            "privacy_unit_details": ADJACENT[privacy.neighbouring].format(unit=UNITS[privacy.unit]),
            "privacy_parameters": {
                "epsilon": next(iter(released.epsilon.values())),
                "delta": privacy.delta,
            },
            "privacy_parameters_details": _parameters(privacy),
        },
        "deployment_model": {
            "model_name": "Federated",
            "model_name_details": privacy.trust,
            "actors": " ".join(actors),
            "release_type": "One release",
            "data_source_type": "Static",
            "access_type": "Non-interactive",
        },
        "accounting": {
            "post_processing": (
                "The server's optimizer and the final model follow from the released sums."
            ),
            "composition": (
                f"{privacy.rounds_charged} rounds in "
                f"{counted(privacy.attempts, 'attempt')}, composed by the accountant "
                f"'{next(iter(released.epsilon))}'."
            ),
        },
    }


def _facts(card: ModelCard, author: str, own: Mapping[str, str]) -> dict[str, str]:
    meanings = {**OWNERS, **OPTIONAL}
    if unknown := [key for key in own if key not in meanings]:
        raise InputError(
            f"--fact {unknown[0]}: the registry has no place for it; give one of "
            f"{', '.join(meanings)}"
        )
    stated = {
        "slug": re.sub(r"[^a-z0-9]+", "_", card.name.lower()).strip("_"),
        "publication-date": card.created[:10],
        "intended-use": card.purpose,
        "author": author,
    }
    facts = {key: value for key, value in {**stated, **own}.items() if value.strip()}
    # A name without Latin letters makes no slug, and a blank fact counts as missing.
    if missing := [key for key in (*OWNERS, "slug", "publication-date") if key not in facts]:
        lacking = "; ".join(f"--fact {key}=… ({meanings[key]})" for key in missing)
        raise InputError(f"the registry needs facts that only you know; give {lacking}")
    if facts.get("sector", SECTORS[0]) not in SECTORS:
        raise InputError(f"--fact sector={facts['sector']}: give one of {', '.join(SECTORS)}")
    if not re.fullmatch(r"\d{4}-\d{2}-\d{2}", facts["publication-date"]):
        raise InputError(
            f"--fact publication-date={facts['publication-date']}: give it as YYYY-MM-DD"
        )
    return facts


def _description(card: ModelCard, alarms: int) -> str:
    sentences = [
        f"A model ({card.network}, {card.parameters:,} trained parameters) that {card.clients} "
        f"clients trained together in {card.rounds} rounds."
    ]
    if (rehearsal := card.rehearsal) is not None and rehearsal.advantage is not None:
        sentences.append(
            f"A rehearsal attacked the same training {rehearsal.trials} times on "
            f"{rehearsal.records:,} records: advantage {number(rehearsal.advantage)} "
            f"({span(rehearsal.advantage_interval, number)} at "
            f"{percent(rehearsal.confidence)}), where the noise allows "
            f"{number(rehearsal.rho_alpha)}."
        )
    else:
        sentences.append("The training was not rehearsed with an adversary.")
    sentences.append(
        f"Checks of the released sums that contradict the claimed noise: {alarms}."
        if alarms
        else "No check of the released sums contradicts the claimed noise."
    )
    return " ".join(sentences)


def _parameters(privacy: Privacy) -> str:
    parameters = [
        f"Towards the {row.vantage.replace('-', ' ')}: "
        + ", ".join(f"epsilon {number(value)} by {name}" for name, value in row.epsilon.items())
        + "."
        for row in privacy.towards
    ]
    if privacy.measures_epsilon:
        parameters.append(
            "Records that clients held back to measure the model cost epsilon "
            f"{number(privacy.measures_epsilon)} at delta 0."
        )
    risks = {}
    for vantage, pairs in risks_by_vantage(privacy).items():
        actor = ACTORS[vantage.replace(" ", "-")]
        risks[f"{actor[:1].lower()}{actor[1:]}"] = pairs
    parameters.append(risk_section.sentence(risks))
    return " ".join(parameters)


def as_yaml(value: Any, indent: int = 0) -> str:
    """Return nested mappings, lists, strings and numbers as YAML 1.1 and 1.2.

    Strings are double-quoted as in JSON, which YAML reads alike.
    """
    pad = " " * indent
    if isinstance(value, Mapping):
        lines = []
        for key, inner in value.items():
            nested = isinstance(inner, Mapping | list)
            lines.append(f"{pad}{key}:" + ("\n" if nested else " ") + as_yaml(inner, indent + 2))
        return "\n".join(lines)
    if isinstance(value, list):
        return "\n".join(f"{pad}- {as_yaml(inner)}" for inner in value)
    text = json.dumps(value, ensure_ascii=False)
    if isinstance(value, float) and "e" in text and "." not in text:
        return text.replace("e", ".0e")  # YAML 1.1 takes 1e-05 for a string
    return text


def complaints(made: Entry, schema: Mapping[str, Any]) -> Sequence[str]:
    """Return why the registry's schema refuses an entry; [] if it accepts it."""
    try:
        import jsonschema  # noqa: PLC0415
    except ImportError:
        raise InputError("--schema needs jsonschema; pip install jsonschema") from None
    errors = jsonschema.Draft202012Validator(schema).iter_errors(json.loads(json.dumps(made)))
    return [f"{'.'.join(map(str, each.path))}: {each.message}" for each in errors]
