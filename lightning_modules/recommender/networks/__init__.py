"""Sequence encoders and their layers. No Lightning."""
