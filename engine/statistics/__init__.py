"""Confidence intervals of metrics, and tests whether two models differ on the same samples.

Imports nothing of the project, and neither torch nor Lightning: `report` reads files without them.
"""
