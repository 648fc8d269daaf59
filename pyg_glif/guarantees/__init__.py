"""Bounds that hold for certain or with a stated probability."""
