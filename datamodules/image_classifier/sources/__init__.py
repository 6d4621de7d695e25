"""Sources of labelled images: scikit-learn's digits, CIFAR, a folder of images."""
