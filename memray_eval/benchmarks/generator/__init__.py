"""Generated samples of exact length by a model's own tokenizer, for the benchmarks that make their
own texts: the kinds of task of a `TaskSet`, a plan (`plan.py`), and samples of it (`generate.py`).
Unless a task set counts otherwise, a sample's tokens are those of `plain_prompt(context,
query)`."""
