"""Vision-language training beside a plain loop and Hugging Face's Trainer, packing, and readers.

Imports `engine`, `callbacks`, the family and `benchmarks.engine`.
"""
