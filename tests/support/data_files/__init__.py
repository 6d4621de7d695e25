"""Writers of data sets for tests: images, PDFs, documents, archives and published formats."""
