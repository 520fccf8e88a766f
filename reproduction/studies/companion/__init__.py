"""A language model with the cache on real text: what the paper leaves open."""
