"""Features of items from a table: reading, encoding, and which items they are for."""
