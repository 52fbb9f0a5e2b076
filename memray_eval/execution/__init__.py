"""The only room that imports ray and, through ray.data.llm, vllm: the plan, the cluster, the
actors, the pipeline, the run."""
