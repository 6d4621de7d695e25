"""One module per family: its input, and its answers as blocks. Imports the package above and the family's packages."""
