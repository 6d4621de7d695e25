"""Item vectors that are the sum of an item's own vector and the vectors of its features."""
