"""Makes the page of `train.py report`: metrics, events, previews and the differences of runs.

Imports `engine`, `commands.runs` and `lightning_modules.recommender.item_ranks`.
"""
