"""Samples per second of CPU trainings by their number of threads."""
