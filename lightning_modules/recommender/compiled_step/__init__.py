"""Forward and backward pass of a recommender's training step in one compiled graph."""
