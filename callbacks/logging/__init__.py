"""Writes for people and programs: log files, progress bar, results table, previews and predictions.

Imports `callbacks.trackers` and `engine`.
"""
