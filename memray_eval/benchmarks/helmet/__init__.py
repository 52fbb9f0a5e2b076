"""HELMET's recall and RAG tasks."""
