"""Results made readable: a table in the terminal, one self-contained HTML page, the figures."""
