"""The page of a recorded federation: who is least protected, and what was checked."""

import re

import numpy as np
import pytest

from fedsim.audits.judgement.claim import Claim
from fedsim.audits.judgement.options import AuditOptions
from fedsim.audits.recorded.audit import audit
from fedsim.federation.transcripts.records import (
    NodeReply,
    ObservedRound,
    Transcript,
    TranscriptFacts,
)
from fedsim.report.kinds import recorded

MECHANISM = {
    "clipping": "server",
    "noise_multiplier": 1.0,
    "clipping_norm": 1.0,
    "num_sampled_clients": 3,
    "aggregation": "mean",
}


def page(noise: float = 1.0, claim: Claim | None = None) -> str:
    """Return the page of a server whose noise is `noise` times what it says."""
    generator = np.random.default_rng(0)
    model, rounds = np.zeros(200), []
    for number in range(1, 5):
        updates = generator.standard_normal((3, 200))
        updates /= np.linalg.norm(updates, axis=1, keepdims=True)
        after = model + updates.mean(0) + noise * generator.standard_normal(200) / 3
        replies = {7 + j: NodeReply({"w": model + u}, 5.0) for j, u in enumerate(updates)}
        rounds.append(
            ObservedRound(
                number, {"w": model}, replies, aggregate={"w": after}, mechanism=MECHANISM
            )
        )
        model = after
    seen = Transcript(TranscriptFacts("server", "a test", "app"), tuple(rounds), True, "", 0)
    return recorded.render_html(audit(seen, AuditOptions(claim=claim)))


@pytest.fixture(scope="module")
def honest() -> str:
    return page()


def test_the_server_stands_first_and_then_the_least_protected_nodes(honest: str) -> None:
    bar = r'<div class="bar"><p><strong>([^<]*)</strong> <span class="mark (\w+)"'
    bars = re.findall(bar, honest)
    assert bars[0] == ("Server", "caution")
    assert [name for name, _ in bars[1:]] == ["Node 8", "Node 9", "Node 7"]
    assert re.findall(r"Failed\.</span> ([^<]*)", honest) == [
        "The recording shows no noise that would protect a client&#39;s update from the server."
    ]


def test_half_the_noise_fails_the_checks_that_a_gate_would_make() -> None:
    halved = page(noise=0.5, claim=Claim(9.8, 1e-5, unit="client"))
    failed = re.findall(r"Failed\.</span>.*?<code>--fail-if &#39;(.*?)&#39;", halved)
    assert failed == [
        "alarms &gt; 0",
        "release.realised_over_claimed.low &lt; 0.9",
        "epsilon &gt; 9.8",
    ]
    assert "verdict alarm" in halved


def test_without_noise_every_node_may_be_known_with_certainty() -> None:
    bare = page(noise=0.0)
    assert re.search("<strong>Node 8</strong>.*?the measured noise allows 100%", bare)
    assert "Must be trusted" in bare
