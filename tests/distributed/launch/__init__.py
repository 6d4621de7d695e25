"""Launchers (Lightning's, torchrun, Accelerate, SLURM, Kubernetes), the doctor under them, and the start of a run."""
