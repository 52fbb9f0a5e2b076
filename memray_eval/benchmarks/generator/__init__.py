"""Generated samples of exact length by a model's own tokenizer, for the benchmarks that make their
own texts: the kinds of task of a `TaskSet`, a plan (`plan.py`), and samples of it (`generate.py`).
A sample's tokens are those of `plain_prompt(context, query)`, unless its set says otherwise."""
