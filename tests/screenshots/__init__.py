"""Takes the pictures of the documentation: the demo of each family, and a report."""
