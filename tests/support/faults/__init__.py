"""Faults that a test injects at a step and a rank, as callbacks, and the options that add them to a run."""
