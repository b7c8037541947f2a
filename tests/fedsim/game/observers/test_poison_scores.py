"""Who sees the released model alone looks at what the crafted target moves."""

import numpy as np
import pytest
import torch
from torch.nn.utils import vector_to_parameters

from fedsim.game import federation
from fedsim.game.challenge import choose
from fedsim.game.federation import initial_parameters
from fedsim.game.observers.released_model import poison_scores


def test_of_clipbkd_it_is_the_gain_of_its_class_over_the_record_of_zeros(small):
    config = small({"challenge.kind": "clipbkd"})
    known, chosen = federation.load(config), choose(config)
    released = initial_parameters(config, known, range(3)) + 0.1
    found = poison_scores(config, known, range(3), released)
    assert found is not None
    features, labels = known.members(np.asarray([chosen.record]))
    for trial in range(3):
        model = federation.build_model(config, known.split.dataset)
        vector_to_parameters(released[trial], model.parameters())
        with torch.no_grad():
            gain = model(features)[0, labels[0]] - model(torch.zeros_like(features))[0, labels[0]]
        assert found[trial] == pytest.approx(float(gain), rel=1e-5, abs=1e-6)


def test_of_a_vector_it_is_how_far_the_model_went_down_it(small):
    config = small({"challenge.kind": "gradient"})
    known = federation.load(config)
    assert known.crafted is not None
    assert known.crafted.direction is not None
    along = known.crafted.direction.float()
    across = torch.zeros_like(along)
    across[:2] = torch.stack([along[1], -along[0]])
    start = initial_parameters(config, known, range(5, 8))
    released = start.clone()
    released -= torch.tensor([0.5, 0.0, -2.0])[:, None] * along
    released += 9 * across
    found = poison_scores(config, known, range(5, 8), released)
    np.testing.assert_allclose(found, [0.5, 0, -2], atol=1e-5)


def test_of_other_records_it_is_how_little_the_model_loses_on_them(small):
    config = small({"challenge.kind": "mislabelled"})
    known, chosen = federation.load(config), choose(config)
    released = initial_parameters(config, known, range(2))
    losses, _ = known.evaluate(released, *known.members(np.asarray([chosen.record])))
    found = poison_scores(config, known, range(2), released)
    np.testing.assert_array_equal(found, -losses[:, 0])


def test_where_nothing_was_made_there_is_no_score(small):
    config = small()
    known = federation.load(config)
    released = initial_parameters(config, known, range(2))
    assert poison_scores(config, known, range(2), released) is None
