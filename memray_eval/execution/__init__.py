"""How a run is carried out: prepared from its config, planned on a machine or cluster, run,
resumed. Only ray/ imports Ray and, through Ray Data LLM, vLLM."""
