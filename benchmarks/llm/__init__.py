"""The cache inside a real language model, beside other caches: ``python -m benchmarks.llm``."""
