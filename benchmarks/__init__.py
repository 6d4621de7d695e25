"""Benchmarks: Lockstep beside plain implementations and other packages, in turns of one run.

`python -m benchmarks` lists them. A benchmark may import every package of the project; only its tests import it.
"""
