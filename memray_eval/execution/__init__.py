"""How a run is carried out: prepared from its config, planned on a machine or cluster, run,
resumed.

prepare/ reads the config (RunSpec, RunPlan); session.py runs a plan to its summary; ray/ is the
only room that imports Ray and, through Ray Data LLM, vLLM."""
