"""Answers to questions about documents: prompts in buckets of similar length, generation, scores of options."""
