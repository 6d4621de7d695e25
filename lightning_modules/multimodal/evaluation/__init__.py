"""Evaluation of generated answers."""
