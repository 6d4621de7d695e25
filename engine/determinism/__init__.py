"""Draws random numbers, most without a generator's state, and hashes tensors. Imports nothing of the project."""
