"""A delta above one over the number of people says nothing."""

import pytest

from adversaries.errors import InputError
from fedsim.audits.run import guarantee
from fedsim.configuration import JOBS, from_run_config, to_run_config


@pytest.mark.parametrize(
    ("unit", "largest", "words"),
    [("record", 1 / 24, "24 records"), ("client", 1 / 3, "3 clients")],
)
def test_a_training_with_a_delta_above_one_over_the_units_is_refused(unit, largest, words, small):
    values = to_run_config(small({"privacy.unit": unit, "federation.clients": 3}))
    training = JOBS["training"](values | {"privacy.delta": largest})
    assert from_run_config(training).privacy.delta == largest
    with pytest.raises(InputError, match=f"privacy.delta is .*, above one over the {words}"):
        from_run_config({**training, "privacy.delta": 1.01 * largest})


def test_an_experiment_is_warned(small):
    for delta, warned in ((1 / 24, False), (0.5, True)):
        config = small({"privacy.delta": delta})
        texts = guarantee.cautions(config)
        assert any("above 1/24" in text for text in texts) is warned
