"""The server of Barrierscope: domain, runtime, analysis, store, services and API.

Its packages are import layers: a package imports only from lower layers (see README). ``domain`` is layer 0.
"""
