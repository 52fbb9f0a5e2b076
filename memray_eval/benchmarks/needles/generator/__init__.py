"""Generated needle suites of any length: InfiniteBench's and RULER's tasks in our own words, in
English and Chinese.

The tokens of a sample are those of `plain_prompt(context, query)` by the given tokenizer, without
special tokens and without a chat template's."""
