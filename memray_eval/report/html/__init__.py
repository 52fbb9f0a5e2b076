"""A run or a comparison as one self-contained HTML file, which needs no network and no server."""
