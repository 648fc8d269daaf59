"""Shared helpers that know nothing of the method."""
