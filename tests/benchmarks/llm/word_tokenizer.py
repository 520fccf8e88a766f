"""A tokenizer without files: a token is a word with the space before it."""

import re


class Words:
    """Numbers words as they come; with a size, numbers come round again."""

    def __init__(self, size=None):
        self.size, self.known = size, {}

    def __call__(self, text, **options):
        found = [
            self.known.setdefault(word, len(self.known)) for word in re.findall(r"\s?\w+|\W", text)
        ]
        return {"input_ids": [one if self.size is None else one % self.size for one in found]}

    def decode(self, ids):
        words = list(self.known)
        return "".join(words[one] for one in ids)
