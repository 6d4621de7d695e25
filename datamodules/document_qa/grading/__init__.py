"""Grading of answers: scores, metrics and confidence intervals. Imports batch and types."""
