"""Decides when checkpoints are saved and what a resumed run takes from them. Imports `engine`."""
