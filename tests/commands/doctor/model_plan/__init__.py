"""Checks the plan of a language model on GPUs."""
