"""Lockstep beside other recommender packages, each in its own environment.

Imports `benchmarks.recommender`; a driver runs in its package's environment and imports nothing of Lockstep.
"""
