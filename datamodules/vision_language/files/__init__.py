"""Chats with images in the files that data sets are published in; each reader is a ChatFile."""
