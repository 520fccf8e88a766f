"""The MIMIC-IV demo, version 2.2: what 100 patients of a hospital were given and found to have.

The digests are those of the set's own ``SHA256SUMS.txt``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .archives import gunzip
from .dataset import DataSet, Files
from .events import Events, numbered
from .fetch import Source, download
from .icd import chapter9, chapter10, labelled
from .places import DataDamaged
from .tables import columns, seconds

URL = "https://physionet.org/files/mimic-iv-demo/2.2/hosp"
PRESCRIPTIONS = "mimic-iv-demo-2.2/hosp/prescriptions.csv.gz"
DIAGNOSES = "mimic-iv-demo-2.2/hosp/diagnoses_icd.csv.gz"
SOURCES = {
    PRESCRIPTIONS: Source(
        f"{URL}/prescriptions.csv.gz",
        "33c392ba5b9299b08eca0a61911ba106f0aebdba26ed31b856bb9ffd49fe3654",
    ),
    DIAGNOSES: Source(
        f"{URL}/diagnoses_icd.csv.gz",
        "958565670c0b3903c0c12825366dc2bae8561d2d55f16feac0c949dd630ed3e4",
    ),
}
N_PRESCRIPTIONS, N_DIAGNOSES = 18_087, 4_506


@dataclass(frozen=True, slots=True)
class Demo:
    """Two streams, each in the order of its file: dates are shifted by patient and order nothing.

    ``prescriptions`` has drugs, spelled as they are, and their routes; a drug may have several,
    and a route may be blank. ``diagnoses`` has ICD codes and their chapters.
    """

    prescriptions: Events
    diagnoses: Events

    def __len__(self) -> int:
        return len(self.prescriptions)


def load() -> Demo:
    """Both streams, from this machine or fetched."""
    return SET.load()


def parse(files: Files) -> Demo:
    """Both streams, complete or refused."""
    demo = Demo(
        prescriptions(gunzip(files[PRESCRIPTIONS], PRESCRIPTIONS)),
        diagnoses(gunzip(files[DIAGNOSES], DIAGNOSES)),
    )
    found = len(demo.prescriptions), len(demo.diagnoses)
    if found != (N_PRESCRIPTIONS, N_DIAGNOSES):
        raise DataDamaged(
            f"there are {found[0]:,} prescriptions and {found[1]:,} diagnoses, "
            f"there should be {N_PRESCRIPTIONS:,} and {N_DIAGNOSES:,}"
        )
    return demo


def prescriptions(table: bytes) -> Events:
    """Drugs and routes, at the time each was to start."""
    drugs, routes, starts = columns(table, ["drug", "route", "starttime"], PRESCRIPTIONS)
    items, names = numbered(drugs)
    labels, classes = numbered(routes)
    return Events(items, labels, seconds(starts, PRESCRIPTIONS), names, classes, PRESCRIPTIONS)


def diagnoses(table: bytes) -> Events:
    """Codes, named like ``9:4139`` and ``10:I10`` for their edition of the ICD, and chapters."""
    codes, editions = columns(table, ["icd_code", "icd_version"], DIAGNOSES)
    pairs = [(edition.strip(), code.strip()) for edition, code in zip(editions, codes, strict=True)]
    labels, classes = labelled(
        chapter9(code) if edition == "9" else chapter10(code) for edition, code in pairs
    )
    items, names = numbered(":".join(pair) for pair in pairs)
    return Events(items, labels, np.arange(len(items)), names, classes, DIAGNOSES)


def _download() -> Files:
    return {name: download(source) for name, source in SOURCES.items()}


SET = DataSet(
    name="mimic",
    licence="Open Database License 1.0",
    advice=f"Put prescriptions.csv.gz and diagnoses_icd.csv.gz from {URL}/ as "
    f"{PRESCRIPTIONS} and {DIAGNOSES}",
    choices=((PRESCRIPTIONS, DIAGNOSES),),
    sources=(_download,),
    parse=parse,
)
