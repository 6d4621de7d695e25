"""LightningCLI with Lockstep's options, messages and trainer.

Imports `commands.launch`, `commands.runs`, `commands.export` and all packages below `commands`.
"""
