"""Recorded timelines of the user. Imports synthetic, text and series."""
