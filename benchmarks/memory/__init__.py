"""Peak memory of a training step of a language model, beside the doctor's prediction."""
