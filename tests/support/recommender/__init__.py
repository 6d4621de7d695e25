"""Encoders, modules, batches and options of the recommender that its tests share."""
