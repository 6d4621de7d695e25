"""A fault of a rank, its loader, memory or numbers ends or corrects all ranks alike; a message names it."""
