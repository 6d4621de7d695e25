"""Generates series of general kinds with questions about them. Imports series and user_series."""
