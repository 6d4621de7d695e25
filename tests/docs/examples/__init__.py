"""Examples and commands of the pages of docs/ are run, and the numbers that they show are computed again."""
