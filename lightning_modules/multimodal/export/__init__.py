"""Exported language and vision-language models, in transformers' formats where they exist."""
