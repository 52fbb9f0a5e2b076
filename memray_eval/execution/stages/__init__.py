"""The stages of a run, on Arrow blocks and on records: no Ray, no global state."""
