"""The vocabulary that every room shares: types, protocols, progress, cadence, randomness, errors.

Imports torch and the standard library only.
"""
