"""Reads properties of the machine and the installation: CPUs, memory, packages, the Hugging Face Hub.

Imports `engine.lightning_internals`.
"""
