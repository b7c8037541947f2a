"""A Flower app whose clients train with Opacus, and whose server averages and nothing else."""
