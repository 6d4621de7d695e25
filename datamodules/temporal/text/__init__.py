"""Facts of series as text: numbers, questions, templates and prompts. Imports temporal.channels only."""
