"""Cost of the recommender as a function of lengths, items, users and rows to convert.

Imports `engine`, the recommender and `benchmarks.recommender`.
"""
