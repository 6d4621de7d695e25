"""Examples and commands of the guides are run, and the numbers that they show are computed again."""
