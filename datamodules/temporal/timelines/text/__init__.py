"""Facts of timelines as text: numbers, questions and templates. Imports `channels` beside it only."""
