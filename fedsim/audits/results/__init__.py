"""What a run's report holds, as values; and report.json, which is those values written down."""
