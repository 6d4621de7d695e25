"""Callbacks that decide when checkpoints are saved and what a resumed run takes from them. Imports `engine`."""
