"""Readers of what a run writes or serves: logs, metrics, trackers, model cards, HTML pages."""
