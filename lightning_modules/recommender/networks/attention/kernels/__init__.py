"""Kernels in Triton for CUDA, each the fast form of a network's function. No Lightning; only CUDA imports them."""
