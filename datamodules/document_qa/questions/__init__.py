"""Question files: their formats, documents and splits. Imports ingestion, grading and types."""
