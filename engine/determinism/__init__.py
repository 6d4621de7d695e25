"""Draws random numbers without a generator's state, and hashes tensors. Imports nothing of the project."""
