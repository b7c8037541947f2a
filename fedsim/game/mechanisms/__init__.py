"""Whose noise a release holds, how much, and what it comes to over rounds."""
