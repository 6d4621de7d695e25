"""Builds optimizers and schedules; computes gradient norms and the mean of the loss over the global batch.

Imports `engine.distributed` and `engine.number_check`.
"""
