"""Tests of kernels that train on CUDA only, without a GPU."""
