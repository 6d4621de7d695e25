"""The command line of a process, how ranks are launched, and decisions of rank 0 for all ranks before training.

Imports `engine`.
"""
