"""What runs at a live auditor's node, and what its transcript proves."""
