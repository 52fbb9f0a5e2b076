"""An assistant that has a memory: for whom it is asked, and the stores that conversations are
written to and searched in."""
