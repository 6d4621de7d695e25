"""Measurements on an accelerator: the parts of `python -m benchmarks.gpu`, each checked against float64.

Imports `callbacks.performance.throughput`, and data and networks of the families.
"""
