"""Training of two machines over a slow network, and a model of its steps.

Imports `engine` and `benchmarks.engine`.
"""
