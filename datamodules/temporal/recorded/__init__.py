"""Recorded timelines of the user. Imports synthetic and text."""
