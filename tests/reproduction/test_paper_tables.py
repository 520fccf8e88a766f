"""Every number of the paper's tables, and of its sentences that have one, has a claim.

The numbers are transcribed from the paper, table by table and row by row, with the claim on each.
"""

import pytest

from reproduction.claims import claims_for

# Of each table its caption or section, and for each of its rows the place of the claims on it and
# the printed numbers, by measure.
TABLES = {
    "3.1.1 recall at the cost of distinct items": {
        "recall.table.superposition": {"recall": 0.83, "slots": 32},
        "recall.table.attention": {"recall": 1.00, "slots": 256},
        "recall.table.knn": {"recall": 1.00, "slots": 256},
        "recall.table.recency": {"recall": 0.70, "slots": 64},
        "recall.table.h2o": {"recall": 0.92, "slots": 64},
        "recall.table.dp": {"recall": 1.00, "slots": 64},
    },
    "3.1.3 deployed caches on a real task": {
        "real_frontier.points.attention": {"recall": 1.00, "slots": 30_000},
        "real_frontier.points.h2o": {"recall": 0.61, "slots": 1600},
        "real_frontier.points.sinks": {"recall": 0.61, "slots": 1600},  # StreamingLLM / recency
        "real_frontier.points.recency": {"recall": 0.61, "slots": 1600},
        "real_frontier.points.snapkv_once": {"recall": 0.23, "slots": 1600},
        "real_frontier.points.dp": {"recall": 0.99, "slots": 1370},
    },
    "3.1.4 learned gates": {
        "gates.gates.rule": {"recall": 0.999, "slots": 64, "kept": 64},
        "gates.gates.mlp": {"recall": 0.372, "slots": 64, "kept": 0},
        "gates.gates.two": {"recall": 1.000, "slots": 64, "kept": 64},
        "gates.gates.distilled": {"recall": 1.000, "slots": 64, "kept": 64},
    },
    "3.1.5 on a state-space backbone": {
        "hybrid.models.ssm": {"recall": 0.14, "R²": 0.98, "slots": 48},
        "hybrid.models.attention": {"recall": 1.00, "R²": 0.98, "slots": 72},
        "hybrid.models.hybrid": {"recall": 1.00, "R²": 0.99, "slots": 24},
    },
    "3.1.6 five models": {
        "five_models.table.ssm": {"recall": 0.039, "slots": 128, "parameters": 73_888},
        "five_models.table.attention": {"recall": 1.000, "slots": 512, "parameters": 123_424},
        "five_models.table.rule": {"recall": 0.999, "slots": 128, "parameters": 123_424},
        "five_models.table.saliency": {"recall": 0.282, "slots": 128, "parameters": 140_065},
        "five_models.table.gate": {"recall": 0.999, "slots": 128, "parameters": 123_426},
    },
    "3.1.7 four domains": {
        "domains.counts.movielens": {"events": 100_000, "distinct": 1682, "redundancy": 60},
        "domains.keyed.movielens": {"recall": 0.99, "slots": 1670},
        "domains.logs.HDFS_numbers_alike_69": {
            **{"lines": 2000, "distinct": 14, "redundancy": 143},
            **{"GA": 0.89, "templates": 15},
        },
        "domains.counts.mimic": {"events": 18_087, "distinct": 631, "redundancy": 29},
        "domains.keyed.mimic": {"recall": 0.99, "slots": 628},
        "domains.counts.synpuf": {"events": 150_000, "distinct": 3981, "redundancy": 38},
        "domains.keyed.synpuf": {"recall": 0.99, "slots": 3933},
    },
    "3.2.1 non-stationary demand": {
        "adaptive.alternating.superposition": {"recall": 0.77, "phase end": 32},
        "adaptive.alternating.attention": {"recall": 1.00, "phase end": 450, "peak": 864},
        "adaptive.alternating.unbounded": {"recall": 0.99, "phase end": 74.4},
        "adaptive.alternating.b30": {"recall": 0.99, "phase end": 27.0},
        "adaptive.alternating.b18": {"recall": 0.81, "phase end": 16.5},
        "adaptive.alternating.surprise": {"recall": 0.89, "phase end": 17.5},
    },
}
SENTENCES = {
    "ten seeds of three hundred episodes": {
        "recall.table.superposition": {"recall": 0.82},
        "recall.table.recency": {"recall": 0.71},
        "recall.table.h2o": {"recall": 0.92},
    },
    "eviction at the distinct-items budget": {
        "frontier.points.h2o": {"recall": 0.92},
        "frontier.points.recency": {"recall": 0.70},
        "frontier.points.sinks": {"recall": 0.70},
        "frontier.points.dp": {"recall": 1.00},
    },
    "MovieLens": {
        "real_frontier.stream.movielens": {"events": 30_000, "distinct": 1388},
        "domains.counts.movielens": {"most frequent": 583},
    },
    "gates over five seeds; near chance with noise": {
        "gates.gates.key": {"recall": 0.30},
        "gates.noise.key_01": {"recall": 0.0625},
    },
    "a quarter of the slots; sixty-fold; routes": {
        "domains.quarter.synpuf": {"least used leaves": 0.30},
        "domains.reduction.least": {"redundancy": 60},
        "domains.keyed.mimic": {"attention": 1.00},
    },
    "logs": {"logs.bare.numbers_alike_69": {"HDFS GA": 0.89, "HDFS found": 15}},
    "the threshold": {
        "tau.sentence.recall": {"number": 0.99},
        "tau.movielens.s90": {"slots / distinct": 2, "recall": 1.00},
    },
    "k-means": {
        "kmeans.points.random": {"recall": 0.81},
        "kmeans.points.dp": {"recall": 1.00, "slots": 64},
    },
    "cost": {
        "cost.speedup.k64_r4": {"speed-up": 3},
        "cost.speedup.k64_r128": {"speed-up": 37},
    },
    "the budget swings; a stationary stream": {
        "adaptive.swing.easy": {"budget": 13},
        "adaptive.swing.hard": {"budget": 24},
        "adaptive.gain.steady_b18": {"gain": 0.00},
    },
    "the adaptive budget on real streams": {
        "adaptive_real.demand.movielens": {"most / fewest": 1.6},
        "adaptive_real.movielens.surprise": {"recall": 0.887, "phase end": 813},
        "adaptive_real.movielens.b813": {"recall": 0.890, "phase end": 813},
        "adaptive_real.demand.bgl": {"fewest": 2, "most": 45},
        "adaptive_real.bgl.surprise": {"recall": 0.94, "phase end": 18},
        "adaptive_real.bgl.b18": {"recall": 0.75, "phase end": 18},
        "adaptive_real.bgl.b45": {"recall": 0.95},
        "adaptive_real.fewer.bgl": {"phase end": 2.5},
    },
}
# The table's number, where the text below it has another, of ten seeds and with a spread.
SUPERSEDED = {
    ("recall.table.superposition", "recall"): (0.83, 0.82),
    ("recall.table.recency", "recall"): (0.70, 0.71),
}


def printed(tables):
    """Every number with the place of its claim."""
    return [
        pytest.param(place, measure, number, id=f"{place}.{measure} {number}")
        for rows in tables.values()
        for place, numbers in rows.items()
        for measure, number in numbers.items()
    ]


@pytest.mark.parametrize(("place", "measure", "number"), printed(TABLES))
def test_no_number_of_a_table_is_left_out(place, measure, number):
    study, table, row = place.split(".")
    claimed = claims_for(study)[table][row][measure]["paper"]
    assert SUPERSEDED.get((place, measure), (number, number)) == (number, claimed)


@pytest.mark.parametrize(("place", "measure", "number"), printed(SENTENCES))
def test_no_number_of_a_sentence_is_left_out(place, measure, number):
    study, table, row = place.split(".")
    assert claims_for(study)[table][row][measure]["paper"] == number


def test_the_transcription_is_whole():
    """As many numbers as the seven tables print; one row of two caches is two rows here."""
    numbers = [sum(map(len, rows.values())) for rows in TABLES.values()]
    assert numbers == [12, 12, 12, 9, 15, 20, 13]
