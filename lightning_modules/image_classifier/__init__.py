"""Image classification: ResNet and ViT with an exponential moving average of the weights."""
