"""Starts torchrun in a process of the fork server, so that neither it nor its ranks pay for their imports."""

FORKED_TORCHRUN = ["-m", "torch.distributed.run", "--run-path", "--start-method", "fork"]
"""Arguments of a team of one process: torch's agent, of which the ranks of train.py are forked children."""
