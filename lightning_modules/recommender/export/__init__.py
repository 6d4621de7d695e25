"""The recommender as an ONNX graph with its model card, and a runtime for it."""
