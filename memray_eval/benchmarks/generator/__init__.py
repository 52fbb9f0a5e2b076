"""Generated samples of exact length by a model's own tokenizer: what the benchmarks that make their
own texts share (needles, mrcr, graphwalks, babilong).

A benchmark names its kinds of task in a `TaskSet`; `plan.py` says what is to be made, `generate.py`
makes it, `sample_spec.py` fits one sample into its length, `parquet.py` writes it. Unless a task
set counts otherwise, the tokens of a sample are those of `plain_prompt(context, query)`, without
special tokens and without a chat template's."""
