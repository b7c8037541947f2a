"""What a report has to satisfy to be released, and signed statements that others can verify."""
