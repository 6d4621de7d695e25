"""Checks of the machine: CPUs, GPUs, memory, limits, environment variables, versions, SLURM.

Imports `commands.launch` and `engine.system`.
"""
