"""memray_eval: evaluate language models with a memory of their user, and long-context models, at
scale on Ray."""

__version__ = "0.1.0"
