"""The rule on a GPU, in Triton. Import what you need from the modules; nothing is loaded here."""
