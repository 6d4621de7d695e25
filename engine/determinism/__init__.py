"""Random numbers without a generator's state, and hashes of tensors. Imports nothing of the project."""
