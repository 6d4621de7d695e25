"""Reading and decoding of untrusted image files, for every family that reads images. Imports engine only."""
