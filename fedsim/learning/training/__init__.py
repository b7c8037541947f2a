"""Models, per-example clipping, optimisers and schedules; knows no Flower."""
