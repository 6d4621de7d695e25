"""Images as pixels: bounded decoding and tiling. Imports the errors and batches of multimodal only."""
