"""The findings of a report, of its type or as report.json has them."""


def raised(report):
    """Return the alarms by the rule that raised each."""
    return {each["rule"]: each["why"] for each in _of(report, "alarm")}


def doubts(report):
    """Return the cautions."""
    return [each["why"] for each in _of(report, "caution")]


def _of(report, severity):
    values = report if isinstance(report, dict) else report.report
    return [each for each in values["findings"] if each["severity"] == severity]
