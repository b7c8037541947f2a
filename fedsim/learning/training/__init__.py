"""Models, per-example clipping, optimisers and schedules, without Flower."""
