"""Chats in tar shards (WebDataset), streamed or with random access. Imports files, chat_file and multimodal."""
