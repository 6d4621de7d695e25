"""Records runs in experiment trackers: TensorBoard by default, Weights & Biases and MLflow when they are enabled.

Imports `engine`.
"""
