"""What is learnt from, and how: data sets, and training with per-example clipping."""
