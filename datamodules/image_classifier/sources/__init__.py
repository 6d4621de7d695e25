"""Sources of labeled images: digits, CIFAR, a folder of images. Imports `datamodules.images` and engine."""
