"""Everything that attacks, or measures an attack. Nothing here imports Flower."""
