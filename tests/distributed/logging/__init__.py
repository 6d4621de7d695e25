"""Logs, metrics, sample previews and trackers of a run on several ranks."""
