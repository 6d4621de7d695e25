"""Exported models: ONNX graphs and a description of the files written. Imports nothing of the project."""
