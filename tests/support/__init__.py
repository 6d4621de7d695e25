"""Code that several tests share. It has no tests."""
