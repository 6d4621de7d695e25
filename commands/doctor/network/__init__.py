"""Checks between processes and hosts: names, interfaces, ports, rendezvous, collectives.

Imports `commands.launch` and `engine.system`.
"""
