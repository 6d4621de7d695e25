"""HTML and JSON reports of answers and ablations. Imports questions, grading, views, batch and types."""
