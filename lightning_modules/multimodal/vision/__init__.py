"""Vision towers: loading and features. Imports `language`. No Lightning."""
