"""Page retrieval: retrievers, saved rankings, and data to train and evaluate a dense retriever.

Imports prompt, grading, views and types.
"""
