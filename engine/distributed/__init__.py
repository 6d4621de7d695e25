"""Provides collectives, step counters, DDP communication hooks, and the errors that all ranks raise together.

Imports nothing of the project.
"""
