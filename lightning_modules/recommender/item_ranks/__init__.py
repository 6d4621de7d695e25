"""Ranks of an evaluation, one per user: the file that keeps them, and the metrics computed from them."""
