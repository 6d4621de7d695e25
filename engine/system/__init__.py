"""Properties of the machine and the installation: CPUs, memory, installed packages, the Hugging Face Hub.

Imports nothing of the project.
"""
