"""Random augmentation of training samples. Imports retrieval, prompt, views and types."""
