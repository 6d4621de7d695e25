"""What people read of an evaluation or a prediction."""
