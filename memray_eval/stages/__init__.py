"""The stages of a run as (async) functions on records: no Ray, no global state."""
