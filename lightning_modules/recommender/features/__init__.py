"""Item vectors that are the sum of an item's own vector and of those of its features."""
