"""The JSON Schema of report.json, of a run and of every kind of audit."""

from pydantic.json_schema import JsonSchemaValue

from fedsim.audits.app.audit import AppDetails
from fedsim.audits.judgement import report as document
from fedsim.audits.judgement.canary_scores import ScoresDetails
from fedsim.audits.live.live_report import LiveDetails
from fedsim.audits.loop.audit import LoopDetails
from fedsim.audits.recorded.audit import RecordedDetails
from fedsim.audits.results.conditions import APP, LIVE, LOOP, RUN, SCORES, TRAINING, TRANSCRIPT
from fedsim.audits.run.report import RunDetails
from fedsim.reports.training_report import TrainingDetails

DETAILS: dict[str, type] = {
    RUN: RunDetails,
    APP: AppDetails,
    LOOP: LoopDetails,
    TRANSCRIPT: RecordedDetails,
    LIVE: LiveDetails,
    SCORES: ScoresDetails,
    TRAINING: TrainingDetails,
}


def of_kinds() -> dict[str, JsonSchemaValue]:
    return {kind: document.schema(details) for kind, details in DETAILS.items()}


def schema() -> JsonSchemaValue:
    """Return one schema to which the report of a run or of any audit keeps."""
    written = {kind.replace(" ", "-"): each for kind, each in of_kinds().items()}
    return {
        "$schema": written[RUN]["$schema"],
        "anyOf": [{"$ref": name} for name in written],
        "$defs": {name: {"$id": name, **each} for name, each in written.items()},
    }
