"""How a run is prepared from its config, planned, run and resumed. Only ray/ imports Ray."""
