"""Answers of a trained model to a user's own input: what the commands `demo` and `chat` share.

interface.py declares what a family provides, families/ implements it, and loading.py loads the checkpoint as `predict`
does. The package imports lightning_modules, datamodules and engine; of the commands it imports none.
"""
