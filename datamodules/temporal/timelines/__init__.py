"""Timelines of resources of machines, generated or recorded, with questions. Imports temporal's root and series."""
