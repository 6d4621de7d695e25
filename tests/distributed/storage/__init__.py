"""Faults of disks and files: checkpoints, the run's folder, caches, and disks without space."""
