"""Recognizes the text of pages that are images only, by one of several programs.

Imports engine and Pillow; each program is imported or started on demand.
"""
