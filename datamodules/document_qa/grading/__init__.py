"""Grading of answers: scores and metrics. Imports batch and types."""
