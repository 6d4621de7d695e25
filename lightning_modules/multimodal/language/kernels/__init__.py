"""Kernels of a language model that train on CUDA alone: Liger's cross-entropy and torch's flex attention."""
