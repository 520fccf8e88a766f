"""The paper measured again: baselines, data, studies, claims and the report."""
