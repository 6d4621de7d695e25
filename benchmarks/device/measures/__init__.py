"""Instruments of the parts: timing in turns, busy time, peak rates, memory traffic, and the float64 reference.

Imports `benchmarks.turn_order`, `benchmarks.device.part` and `callbacks.performance.peak_flops`.
"""
