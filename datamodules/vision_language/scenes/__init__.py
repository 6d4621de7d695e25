"""Rendered scenes with questions and captions. Imports engine.determinism and chat_file."""
