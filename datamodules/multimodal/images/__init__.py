"""Images as views of a vision tower: resizing and tiling. Imports the batches of multimodal only."""
