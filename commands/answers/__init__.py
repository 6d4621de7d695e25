"""Answers a user's own input with a trained model, for the commands `demo` and `chat`.

answer_service.py declares what a family provides, and families/ implements it. answer_service_loading.py loads the
checkpoint as `predict` does. The package imports lightning_modules, datamodules, engine and `commands.export`.
"""
