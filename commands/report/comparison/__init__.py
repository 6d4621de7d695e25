"""Compares runs on the same samples, by the ranks or the answers that their tests have saved.

Imports `engine`, `commands.report` and, for the ranks of recommenders, `lightning_modules.recommender.item_ranks`.
"""
