"""Synthetic series and questions about them. Imports text and channels."""
