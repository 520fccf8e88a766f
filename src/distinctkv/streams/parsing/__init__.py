"""The parts of the log parser."""
