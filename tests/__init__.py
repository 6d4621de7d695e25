"""Tests of the packages in folders of the same names, and of whole runs; README.md explains the folders and tiers."""
