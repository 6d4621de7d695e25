"""Readers of PDFs, Markdown files and page images: each hands pages with their chunks to a PageWriter."""
