"""Encoders and records of time series that tests share."""
