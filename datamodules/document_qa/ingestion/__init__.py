"""Ingestion of PDFs, Markdown files and images into documents, by worker processes, with a cache. Imports types."""
