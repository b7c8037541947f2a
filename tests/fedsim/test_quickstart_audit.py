"""Flower's own DP, in a quickstart app that fedsim records with one line, audited offline."""

import math

import pytest

from adversaries.statistics import gaussian
from fedsim.audits.judgement.options import AuditOptions
from fedsim.audits.recorded.audit import audit

DELTA, CONFIDENCE, NODES, ROUNDS, NORM, Z = 1e-5, 0.999, 3, 3, 0.5, 1.0


def report_of(transcript):
    return audit(transcript, AuditOptions(delta=DELTA, confidence=CONFIDENCE)).report


def alarms(report):
    return [one["why"] for one in report["findings"] if one["severity"] == "alarm"]


@pytest.mark.parametrize("privacy", ["server", "client"])
def test_central_dp_has_the_noise_it_claims_for_an_average_client(quickstart, privacy):
    report = report_of(quickstart(privacy=privacy)["server"])
    release, ends = report["details"]["release"], report["rows"]["participant"]["noise"]
    assert ends["low"] <= 1 <= ends["high"]
    assert ends["high"] / ends["low"] < 1.1
    # Clients have 1/6, 2/6 and 3/6 of the examples: the last weighs half, and noise presumes 1/3.
    for client, share in zip(release["clients"], (1 / 6, 2 / 6, 3 / 6), strict=True):
        assert client["largest_weight"] == pytest.approx(share, rel=0.01)
        mu = share * NODES * math.sqrt(ROUNDS) / Z
        assert client["epsilon"] == pytest.approx(gaussian.epsilon(mu, DELTA), rel=0.1)


def test_clients_that_weigh_more_than_the_noise_presumes_are_noticed(quickstart):
    report = report_of(quickstart(privacy="server")["server"])
    said = " ".join(one["why"] for one in report["findings"])
    assert "a client has a weight of up to 0.5, while the noise assumes 0.333 for each" in said


def test_local_dp_is_unseen_by_the_server(quickstart):
    found = quickstart(privacy="local", local_epsilon=1.0)
    assert report_of(found["server"])["details"]["release"]["noise"] == "none"


def test_without_dp_epsilon_is_infinite_and_every_client_is_certain(quickstart):
    release = report_of(quickstart()["server"])["details"]["release"]
    assert release["noise"] == "none"
    assert all(client["belief"][-1] == 1 for client in release["clients"])
