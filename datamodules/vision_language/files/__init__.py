"""Chats in JSON and Parquet files, and folders of images. Imports chat_file and multimodal."""
