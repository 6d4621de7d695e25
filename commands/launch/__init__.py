"""How ranks are launched, and decisions of rank 0 for all ranks before training. Imports `engine`."""
