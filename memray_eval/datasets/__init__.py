"""Datasets of many formats, read as a stream and checked sample by sample."""
