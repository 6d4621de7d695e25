"""Questions about documents: synthetic manuals, or the user's own documents and questions.

Packages, from the bottom up: types; views and grading; prompt; retrieval; augmentation; samples. `ingestion` and
`questions` read files, `manuals` generates data, `reports` writes HTML. A package imports only those below it.
"""
