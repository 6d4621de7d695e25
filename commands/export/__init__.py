"""Model cards of exported models. Imports `commands.runs` and `engine`."""
