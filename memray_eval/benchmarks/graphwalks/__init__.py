"""GraphWalks: which nodes an operation on a long list of edges results in."""
