"""Sources of labelled images: digits, CIFAR, a folder of images. Imports `datamodules.images` and engine."""
