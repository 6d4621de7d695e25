"""Seconds until `--help` and until the end of the first step, beside `import torch`.

Imports nothing else of the project: it measures processes.
"""
