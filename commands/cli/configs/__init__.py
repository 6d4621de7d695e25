"""Config files: checks before the parser reads them, short messages, and line numbers of settings."""
