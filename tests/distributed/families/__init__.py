"""The exactness of each model family on several ranks; the recommender's is in tests/distributed/exactness."""
