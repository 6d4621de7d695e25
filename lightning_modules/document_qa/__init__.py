"""Document question answering: a reader of documents and a retriever of pages.

Imports `lightning_modules.multimodal`.
"""
