"""Chats about images, from rendered scenes, files and tar shards. Imports multimodal and engine."""
