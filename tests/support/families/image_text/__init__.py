"""Builds tiny models of each class of image-text models that can be fine-tuned."""
