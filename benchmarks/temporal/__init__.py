"""Cost of a sample of the temporal family, beside a training step.

Imports `engine` and the family's data.
"""
