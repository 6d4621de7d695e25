"""Exports models as ONNX graphs and describes the written files. Imports nothing of the project."""
