"""Config files: checks before the parser reads them, short messages, and places of settings."""
