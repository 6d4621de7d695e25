"""Training and evaluation samples: questions with contexts. Imports augmentation, prompt, views and types."""
