"""Data sets by name: MovieLens and the embedded marketplace. Imports reading, store and recommender.events."""
