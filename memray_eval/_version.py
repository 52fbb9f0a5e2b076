"""The package's version and its folder, below all rooms."""

from pathlib import Path

PACKAGE = Path(__file__).parent
__version__ = "0.1.0"
