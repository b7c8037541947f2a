"""A condition shuts a gate where it holds, and where nobody can tell; a typing error is no gate."""

import pytest

from adversaries.errors import InputError
from fedsim.audits.results import conditions
from fedsim.audits.results.conditions import LACKING, RUN, complaint, names, parse

REPORT = {
    "vantage": "participant",
    "rows": {
        "participant": {
            "limit": {"epsilon": "Infinity", "rho_alpha": 0.3},
            "attack": {"advantage": None, "interval": [0.12, 0.4], "trials": 40},
        },
        "server": {"limit": {"rho_alpha": 1.0}, "attack": None},
    },
    "released": None,
    "alarms": 1,
    "job": "experiment",
}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("advantage.low > .1", "advantage.low > 0.1: it is 0.12"),
        ("advantage.low > .12", ""),
        ("advantage.low>=1.2e-1", "advantage.low >= 0.12: it is 0.12"),
        (
            "rows.participant.attack.interval.-1 < +.5",
            "rows.participant.attack.interval.-1 < 0.5: it is 0.4",
        ),
        ("epsilon > 1e300", "epsilon > 1e+300: it is inf"),
        ("alarms != 0", "alarms != 0: it is 1"),
        ("rows.server.rho_alpha >= 1", "rows.server.rho_alpha >= 1: it is 1"),
        ("rows.participant.rho_alpha >= 1", ""),
        ("rows.participant.epsilon > 2", "rows.participant.epsilon > 2: it is inf"),
    ],
)
def test_the_gate_shuts_where_a_condition_holds(text, said):
    assert complaint(parse(text, [RUN]), REPORT) == said


@pytest.mark.parametrize("operator", conditions.OPERATORS)
@pytest.mark.parametrize(
    "path",
    [
        *("advantage", "one_run.count", "rows.participant.attack.interval.5"),
        *("rows.server.advantage", "rows.nobody.epsilon", "rows.participant.limit.epsilom"),
        *("__import__('os').getpid()", "{0.__class__}"),
    ],
)
def test_what_was_not_measured_passes_no_gate(path, operator):
    said = complaint(parse(f"{path} {operator} 0", [RUN]), REPORT)
    assert said.startswith(f"cannot tell whether {path} {operator} 0: ")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("advantag > .1", "it has accuracy, advantage, advantage.high"),
        ("name > 1", "has no number 'name'"),
        *((text, "is not a condition") for text in ("", "advantage", "> 1", "advantage => 1")),
        *(
            (f"advantage > {number}", "is not a condition")
            for number in ("nan", "1e999", "1_0", "x")
        ),
    ],
)
def test_a_typing_error_is_found_before_the_run(text, says):
    with pytest.raises(InputError, match="--fail-if") as refused:
        parse(text, [RUN])
    assert says in str(refused.value)


SHORT = sorted({name for kind in LACKING for name in names(kind)})


@pytest.mark.parametrize("kind", LACKING)
@pytest.mark.parametrize("name", SHORT)
def test_every_kind_of_report_has_a_short_name_or_refuses_it(kind, name):
    if name in names(kind):
        assert parse(f"{name} > 0", [kind]).path == name
        return
    with pytest.raises(InputError, match=f"a {kind} has no number '{name}'; it has "):
        parse(f"{name} > 0", [kind])
    # A command that may meet another kind of report asks its report once that is there.
    said = complaint(parse(f"{name} > 0", [kind, *LACKING]), {"kind": kind})
    assert said.startswith(f"cannot tell whether {name} > 0: ")


@pytest.mark.parametrize("kind", [kind for kind in LACKING if kind.endswith("audit")])
def test_what_an_audit_cannot_tell_passes_no_gate(kind):
    """No claim and no default stands in for a number that is missing."""
    row = {"limit": None, "attack": None, "noise": None, "detects": None}
    report = {"kind": kind, "vantage": "server", "rows": {"server": row}, "claim": {"epsilon": 1}}
    for name in names(kind):
        assert complaint(parse(f"{name} > 1e9", [kind]), report).startswith("cannot tell")
