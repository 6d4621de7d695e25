"""Shared data code of the language-model families: chats, packing, batches, tokenizers, tiling. Imports engine only."""
