"""Readers of interaction files, and the location of errors in them. Imports recommender.events only."""
