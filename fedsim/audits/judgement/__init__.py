"""Claims, findings and verdicts, shared by all audits."""
