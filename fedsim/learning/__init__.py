"""Data sets, and training with per-example clipping."""
