"""Ends a run cleanly: watchdog, preemption, SLURM requeue and advice when memory runs out.

Imports `callbacks.checkpointing` and `engine`.
"""
