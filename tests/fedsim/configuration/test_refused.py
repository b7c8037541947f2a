"""The table of refused combinations: every row bites and lets go when heeded."""

import pytest

from fedsim.configuration import KNOWN_KEYS, Config, to_run_config
from fedsim.configuration.refused import REFUSED

CASES = [(need, must) for need in REFUSED for must in need.needs]
TRUE = {
    "is": lambda value: value,
    "is one of": lambda values: values[0],
    "is above": lambda bound: bound + 1,
    "is below": lambda bound: bound / 2,
    "is at least": lambda bound: bound,
    "is even": lambda _: 2,
}
FALSE = {
    "is above": lambda bound: bound,
    "is at least": lambda bound: bound - 1,
    "is even": lambda _: 3,
    "is not": lambda value: value,
}


def _with(config, key, value):
    """Return the configuration with one other value, whatever that is refused with."""
    table, name = key.replace("-", "_").split(".")
    changed = getattr(config, table).model_copy(update={name: value})
    return config.model_copy(update={table: changed})


def _other(value):
    if isinstance(value, bool):
        return not value
    return "another" if isinstance(value, str) else value + 1


def _so(config, setting):
    """Return the configuration with a value for which the setting holds."""
    if setting.test == "is not":
        return _with(config, setting.key, _other(setting.tested))
    return _with(config, setting.key, TRUE[setting.test](setting.tested))


def _not_so(config, setting):
    """Return the configuration with a value for which the setting does not hold."""
    if setting.test in FALSE:
        return _with(config, setting.key, FALSE[setting.test](setting.tested))
    first = setting.tested[0] if isinstance(setting.tested, tuple) else setting.tested
    return _with(config, setting.key, _other(first))


@pytest.mark.parametrize(("need", "must"), CASES, ids=lambda part: getattr(part, "key", ""))
def test_a_row_refuses_in_one_line_and_is_content_once_either_side_gives_way(need, must):
    config = Config()
    for setting in (*need.what, *need.needs):
        config = _so(config, setting)
    need.check(config)
    with pytest.raises(
        ValueError, match=f"{must.key} .*, but {need.what[0].key} .*[.] "
    ) as refused:
        need.check(_not_so(config, must))
    assert must.advice in str(refused.value)
    assert "\n" not in str(refused.value)
    need.check(_not_so(_not_so(config, must), need.what[0]))


def test_every_key_of_the_table_exists_with_a_value_of_its_kind():
    defaults = to_run_config(Config())
    for setting in (setting for need in REFUSED for setting in (*need.what, *need.needs)):
        assert setting.key in KNOWN_KEYS
        tested = setting.tested[0] if isinstance(setting.tested, tuple) else setting.tested
        assert isinstance(tested, str) == isinstance(defaults[setting.key], str), setting.key
