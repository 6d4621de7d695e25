"""Runs tests on a GPU, or on the CPU as a form of the same test: options, processes, faults, report."""
