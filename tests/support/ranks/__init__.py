"""Starts the ranks of a run, on one host or two, and callbacks and strategies for those runs."""
