"""Cost of a training's guards, gain of a second process, and time that a checkpoint blocks training.

Imports `engine` and the recommender, which it trains.
"""
