"""Run directories: names, locks, checkpoints to resume from, and the settings a run was trained with.

Imports `commands.launch` and `engine`.
"""
