"""Projectors from features to embeddings, and their place among the text's embeddings. No Lightning."""
