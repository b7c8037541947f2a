"""A live auditor's node, and the audit of its transcript."""
