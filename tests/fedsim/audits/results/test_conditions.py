"""A condition shuts a gate where it holds, and where nobody can tell; a typing error is no gate."""

import pytest

from adversaries.errors import InputError
from fedsim.audits.results import conditions
from fedsim.audits.results.conditions import LIVE, RUN, TRAINING, complaint, parse, readings

REPORT = {
    "vantage": "participant",
    "rows": {
        "participant": {
            "limit": {"epsilon": "Infinity", "rho_alpha": 0.3},
            "attack": {"advantage": None, "interval": [0.12, 0.4], "trials": 40},
        },
        "server": {"limit": {"rho_alpha": 1.0}, "attack": None, "noise": [], "detects": True},
    },
    "released": None,
    "alarms": 1,
    "utility": {"accuracy": {"mean": []}},
}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("advantage.low > .1", "advantage.low > 0.1: it is 0.12"),
        ("advantage.low > .12", ""),
        ("advantage.low>=1.2e-1", "advantage.low >= 0.12: it is 0.12"),
        ("epsilon > 1e300", "epsilon > 1e+300: it is inf"),
        ("alarms != 0", "alarms != 0: it is 1"),
        ("rows.server.rho_alpha >= 1", "rows.server.rho_alpha >= 1: it is 1"),
        ("rows.participant.rho_alpha >= 1", ""),
    ],
)
def test_the_gate_shuts_where_a_condition_holds(text, said):
    assert complaint(parse(text, [RUN]), REPORT) == said


@pytest.mark.parametrize("operator", conditions.OPERATORS)
@pytest.mark.parametrize(
    "name",
    [
        *("advantage", "accuracy", "proven", "missed", "rows.server.advantage"),
        *("rows.nobody.epsilon", "rows.server.detects", "rows.server.noise.low"),
    ],
)
def test_what_was_not_measured_passes_no_gate(name, operator):
    """No claim and no default stands in for a number that is missing."""
    condition = parse(f"{name} {operator} 0", [RUN])
    claimed = REPORT | {"kind": LIVE, "claim": {"epsilon": 1, "missed": 0}}
    for report in (REPORT, claimed, {}):
        said = complaint(condition, report)
        assert said.startswith(f"cannot tell whether {name} {operator} 0: ")
    assert name not in readings(REPORT)


@pytest.mark.parametrize(
    ("text", "kind", "says"),
    [
        ("advantag > .1", RUN, "it has accuracy, advantage, advantage.high"),
        ("rows.server.limit.epsilon > 1", RUN, "has no number 'rows.server.limit.epsilon'"),
        ("__import__('os').getpid() > 1", RUN, "has no number '__import__"),
        *(
            (f"{name} > 1", TRAINING, "it has accuracy, alarms, epsilon, rho_alpha, rho_beta")
            for name in ("advantage", "missed", "noise.low", "rows.participant.belief")
        ),
        *((text, RUN, "is not a condition") for text in ("", "advantage", "> 1", "alarms => 1")),
        *((f"alarms > {each}", RUN, "is not a condition") for each in ("nan", "1e999", "1_0")),
    ],
)
def test_a_typing_error_is_found_before_the_run(text, kind, says):
    with pytest.raises(InputError, match="--fail-if") as refused:
        parse(text, [kind])
    assert says in str(refused.value)


def test_a_training_has_the_accuracy_of_its_last_round_and_the_limits_of_its_observers():
    details = {"rounds": [{"accuracy": 0.1}, {"accuracy": 0.5}]}
    rows = {"participant": {"limit": {"epsilon": 2.5}}}
    report = {"kind": TRAINING, "vantage": "participant", "rows": rows, "details": details}
    assert complaint(parse("epsilon > 2", [TRAINING]), report) == "epsilon > 2: it is 2.5"
    assert complaint(parse("accuracy < 0.6", [TRAINING]), report) == "accuracy < 0.6: it is 0.5"
