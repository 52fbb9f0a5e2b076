"""Datasets: a folder of samples, a combined JSON, JSONL or Parquet, read as a stream and checked
sample by sample."""
