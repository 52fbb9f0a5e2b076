"""Compares two or more candidates, of one run or several, on the units that they share: what
differs, whether that could be chance, and what makes the runs hard to compare. Two units are the
same if their sample id and task are."""
