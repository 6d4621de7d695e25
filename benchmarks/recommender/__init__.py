"""SASRec and TiSASRec, their sampling and their evaluation beside plain implementations.

Imports `engine` and the recommender.
"""
