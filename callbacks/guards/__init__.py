"""Stops or corrects a run: non-finite gradients, bad samples, unused parameters, unequal replicas.

Imports `callbacks.health` and `engine`.
"""
