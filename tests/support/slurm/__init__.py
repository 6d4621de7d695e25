"""A real SLURM cluster of two nodes on one machine."""
