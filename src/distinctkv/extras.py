"""How to get what is not installed."""


def install(extra: str) -> str:
    """The command that installs an optional part, here and in a checkout.

    >>> install("hf")
    "pip install 'distinctkv[hf]' (in a checkout: pip install '.[hf]')"
    """
    return f"pip install 'distinctkv[{extra}]' (in a checkout: pip install '.[{extra}]')"
