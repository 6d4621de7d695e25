"""Cost of the ingestion of documents, and quality of page retrieval.

Imports `engine` and the family's data.
"""
