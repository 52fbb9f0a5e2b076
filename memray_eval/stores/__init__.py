"""Assistants with a memory: the user of a request, and the stores that conversations are written to
and searched in."""
