"""Log files, read to their end or as they grow."""
