"""Prompts: the pages of a document that fit a token budget, and the chat around them. Imports types and views."""
