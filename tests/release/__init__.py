"""A release: the wheel, the installation, Windows, and runs of version 0.1.0."""
