"""Reads the user's series and questions from files. Imports series."""
