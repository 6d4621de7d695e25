"""Attention layers of the sequence encoder, and the fast forms of their functions. No Lightning.

`kinds` names them and may import the others; they import the dropout and the time buckets of `networks`.
"""
