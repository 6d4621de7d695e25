"""The command `chat`: a trained model answers in the terminal. Imports commands.answers."""
