"""Synthetic manuals of devices, with questions and right answers. Imports types only."""
