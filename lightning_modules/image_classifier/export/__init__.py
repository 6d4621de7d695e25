"""The classifier as an ONNX graph with its model card."""
