"""What the encoder reads of an event besides its item and time."""
