"""Kernels that train on CUDA alone, without a GPU."""
