"""What a client's owner is told of the client's own records, on that machine and nowhere else."""
