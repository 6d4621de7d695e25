"""Shared data code of the language-model families: chats, packing, batches, tokenizers, images. Imports engine only."""
