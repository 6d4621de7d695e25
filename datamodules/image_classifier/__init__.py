"""Labeled images: scikit-learn's digits, CIFAR, or image files. `sources` imports none of the other modules."""
