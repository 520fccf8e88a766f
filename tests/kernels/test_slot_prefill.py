"""`kernels.slot_prefill`: causal reads of whole sequences, and when `nn` takes them."""


def test_the_kernels_read_what_torch_reads(wrong):
    assert max(wrong["reads"]) < 2e-6


def test_what_refused_tokens_hold_reaches_no_read(wrong):
    assert wrong["strange"] == [0, 0.0, 0.0]


def test_a_long_read_in_16_bits_goes_to_the_kernels_and_no_other_does(wrong):
    times_looked, mass, first = wrong["dispatched"]
    assert times_looked == 2
    assert mass < 4e-3
    assert first < 4e-3
