"""The page of a data distribution: who holds what, and what to look at before a run."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from fedsim.config import Config
from fedsim.learning.data.distribution import DataDistribution
from fedsim.report import distribution_report
from fedsim.report.distribution_report import DistributionReport

Make = Callable[..., Config]


@pytest.fixture
def report(small: Make) -> DistributionReport:
    return distribution_report.assemble(small({"federation.clients": 3}).experiment)


def test_data_that_need_no_second_look_pass_every_check(report: DistributionReport) -> None:
    page = distribution_report.render_html(report)
    assert "Checks: 4 passed" in page
    assert 'data-label="Most records">client 0<' in page


def test_what_to_look_at_again_is_a_failed_check_and_a_step(report: DistributionReport) -> None:
    said = "column 'name' has 400 different values"
    alone = DataDistribution(np.diag(report.held.sizes))
    page = distribution_report.render_html(replace(report, held=alone, cautions=[said]))
    assert "Checks: 2 failed, 2 passed" in page
    assert "Column &#39;name&#39; has 400 different values." in page
