"""Decoding and loading of images, by core."""
