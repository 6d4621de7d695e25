"""Tests of a training on one GPU, and the same tests on the CPU.

`make test-gpu` runs them with `device` "cuda", the most valuable first, within GPU_MINUTES. `make test` and
`make test-slow` run each of them with `device` "cpu", so that nothing in it is untried but the device. Everything that
uses the device runs in processes of its own: a broken CUDA context, an exhausted memory or a kernel that hangs fails
one test and no other.
"""
