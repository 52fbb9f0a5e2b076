"""MRCR: one of several answers to the same request, out of a long conversation."""
