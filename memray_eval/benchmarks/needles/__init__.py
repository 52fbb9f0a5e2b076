"""Generated samples of exact length by a model's own tokenizer, with something hidden in each: a
plan of tasks (`plan.py`), and samples of it (`generate.py`). A sample's tokens are those of
`plain_prompt(context, query)`."""
