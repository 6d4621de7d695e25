"""Builds optimizers and schedules; computes gradient norms and the mean of the loss over the global batch.

Imports `engine.distributed`, `engine.lightning_internals`, `engine.number_check` and `engine.system`.
"""
