"""The command `train.py sweep`: a hyper-parameter search by Optuna, each trial a training in its own process.

The study is the folder `runs/NAME`: `study.db` (Optuna's SQLite), `study.json` (for the report) and a run directory for
each trial. Locks of the kernel, on `study.lock` and on `trial-0003.lock`, decide which worker runs a trial; they end
with the process that holds them.
"""
