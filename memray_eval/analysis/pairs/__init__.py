"""Compares candidates by pairs of their answers: which pairs are judged, what the verdicts say of
the candidates, and how far the judge can be trusted."""
