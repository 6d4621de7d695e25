"""Draws negatives of a training batch: uniform, by popularity, and targets of the global batch."""
