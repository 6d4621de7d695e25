"""Data of tiny documents and chats about them."""
