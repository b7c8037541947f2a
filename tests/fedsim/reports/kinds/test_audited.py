"""The page of an audit: its first screen, its checks, and the schema that its numbers keep."""

import json
import re

import jsonschema
import pytest

from fedsim.audits.judgement.claim import Claim
from fedsim.audits.judgement.options import AuditOptions
from fedsim.audits.recorded.audit import audit
from fedsim.federation.transcripts.reader import read_transcript
from fedsim.reports.kinds import audited
from fedsim.reports.kinds.schema import of_kinds, schema
from tests.corpus import KINDS
from tests.fedsim.commands.auditing.test_audit import server


def page(folder, noise=1.0, claim=None):
    """Return the page of a server whose noise is `noise` times what it says."""
    seen = read_transcript(server(folder / "t", noise))
    return audited.page(audited.told(audit(seen, AuditOptions(claim=claim))))


@pytest.fixture(scope="module")
def honest(tmp_path_factory):
    return page(tmp_path_factory.mktemp("honest"))


def test_the_server_stands_last_and_the_least_protected_node_is_named(honest):
    bar = r'<div class="bar"><p><strong>([^<]*)</strong> <span class="mark (\w+)"'
    assert re.findall(bar, honest) == [("Participant", "open"), ("Server", "caution")]
    assert "The least protected client is node 8, with at most ε = " in honest


def test_half_the_noise_stands_in_the_numbers_of_a_gate(tmp_path):
    halved = page(tmp_path, 0.5, claim=Claim(9.8, 1e-5, unit="client"))
    gate = dict(re.findall("<dt>(.*?)</dt><dd>(.*?)</dd>", halved.partition('id="gate"')[2]))
    assert float(gate["alarms"]) > 0 and float(gate["noise.low"]) < 0.9
    assert float(gate["epsilon"]) > 9.8 and float(gate["epsilon.low"]) > 9.8
    assert float(gate["rows.server.rho_alpha"]) == 1
    assert "verdict alarm" in halved and "Do not release" in halved


AUDITS = [name for name in KINDS if "-audit" in name]


@pytest.mark.parametrize("name", AUDITS)
def test_every_audit_keeps_its_schema_and_its_first_screen_is_short(name, played):
    schemas, whole = of_kinds(), jsonschema.Draft202012Validator(schema())
    for path in played.folder.rglob("report.json"):
        report = json.loads(path.read_text(encoding="utf-8"))
        one = jsonschema.Draft202012Validator(schemas[report.get("kind", "run")])
        one.validate(report)
        whole.validate(report)
        refuted = [each for each in report.get("findings", ()) if "is refuted: " in each["why"]]
        assert bool(refuted) == (report.get("verdict") == "convicted")
        assert all("99.99% confidence" in each["why"] for each in refuted)
        report["rows"]["nobody"] = {}
        assert not one.is_valid(report) and not whole.is_valid(report)

    for path in played.folder.rglob("report.html"):
        if (path.parent / "config.toml").exists():
            continue  # a run's own page
        text = path.read_text(encoding="utf-8")
        shown = text[text.index('<section class="verdict') :].partition("<details")[0]
        told = json.loads((path.parent / "report.json").read_text(encoding="utf-8"))
        refused = "Do not release" in shown or "no ground for a release" in shown
        assert refused == (told["verdict"] != "supported")
        assert shown.count("<p>ALARM: ") == sum(
            each["severity"] == "alarm" for each in told["findings"]
        )
        words = re.sub(r"(?s)<svg.*?</svg>|<[^>]+>", " ", shown).split()
        assert len(words) <= 150, path
    for ended in played.ended:
        assert ended.output.count("\n") <= 22  # with the place of the report
