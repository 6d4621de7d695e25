"""Wraps the private names of Lightning, torch and jsonargparse that the project uses; no other package uses them.

- `training_loop`: where the training loop is, and what follows
- `checkpoint_layout`: keys of the loops in a checkpoint
- `processes`: ranks, process groups, signals and loader workers
- `tensors`: torch's multi-tensor functions, its compiler, and tensors without values
- `strategies`, `loggers`, `cli`: base classes that give private members of Lightning's classes public names

Each function states why no public name suffices. `tests/engine/lightning_internals` tests what each name does, and
reports the installed version when an update changes it. Imports nothing of the project.
"""
