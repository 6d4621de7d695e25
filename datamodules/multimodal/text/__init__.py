"""Chats as tokens: tokenizers, chat templates, loss masks and packing. Imports the batches of multimodal."""
