"""Provides the Lightning callbacks that every run has. They import `engine` alone.

Its packages, from bottom to top: `trackers`, `logging`, `checkpointing`, `health`, then `guards`, `performance` and
`prometheus`.
"""
