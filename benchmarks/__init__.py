"""Benchmarks: Lockstep beside plain implementations and other packages, in turns of one run.

Terms: a `variant` is what is measured, such as Lockstep, a plain loop or another package. A `peer` is a variant
that Lockstep is compared with. A `turn` measures every variant once; variants take turns, so that a machine whose speed
drifts slows all of them alike, and a table shows the median of the turns. A `part` of a benchmark is one of its tables.

`python -m benchmarks` lists the benchmarks. A benchmark may import every package of the project; only its tests import
a benchmark.
"""
