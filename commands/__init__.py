"""The commands of `python train.py`. Nothing imports this package but train.py.

Its packages, from bottom to top: `launch`, `runs`, `export`, `answers`, `demo`, `chat`, `cli`, then `doctor`, `report`
and `sweep`.
"""
