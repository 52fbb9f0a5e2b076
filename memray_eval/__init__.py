"""memray_eval: evaluate language models with a memory of their user, and long-context models, at
scale on Ray."""

import logging

__version__ = "0.1.0"

logging.getLogger(__name__).addHandler(logging.NullHandler())
