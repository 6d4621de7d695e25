"""Metrics of runs on a copy of MovieLens-1M with filled-in time stamps, for the users whose stamps are official."""
