"""Views of a document: the same document with parts of its content removed or replaced."""
