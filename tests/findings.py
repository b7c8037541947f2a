"""The findings of a report, of its type or as report.json has them."""


def raised(report):
    """Return the alarms by the rule that raised each."""
    return {each["rule"]: each["why"] for each in _findings(report) if each["severity"] == "alarm"}


def doubts(report):
    """Return the cautions."""
    return [each["why"] for each in _findings(report) if each["severity"] == "caution"]


def _findings(report):
    return (report if isinstance(report, dict) else report.report)["findings"]
