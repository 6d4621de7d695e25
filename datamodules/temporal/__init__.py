"""Time series and questions about them. Imports multimodal and engine."""
