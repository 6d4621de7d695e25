"""Readers of the recommender's files: tables of interactions and items, titles, histories, ids and ranks."""
