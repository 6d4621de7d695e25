"""Encodes histories with recurrent networks. No Lightning."""
