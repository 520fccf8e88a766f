"""Diagnoses and prescriptions: the MIMIC-IV demo, CMS DE-SynPUF, and the chapters of ICD codes.

MIMIC-IV demo 2.2: what 100 patients of a hospital were given and found to have. The digests are
those of its own ``SHA256SUMS.txt``.

DE-SynPUF: diagnosis codes on synthetic inpatient claims; what is recalled is their chapter. Read
from the official inpatient file of Sample 1, zipped or not, or from ``dx_stream.csv.gz``, a table
of claims of other samples with all codes of a claim in one column. CMS publishes no digests, and
we have not downloaded the official file; it must have the right columns and 66,773 claims.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from .download import DataDamaged, DataSet, Files, download, gunzip, unzip
from .events import Events, columns, numbered, seconds
from .synthetic import Ints

FIRST_CODES = (
    (1, "infectious and parasitic diseases"),
    (140, "neoplasms"),
    (240, "endocrine, nutritional, metabolic, immunity"),
    (280, "blood"),
    (290, "mental disorders"),
    (320, "nervous system and sense organs"),
    (390, "circulatory system"),
    (460, "respiratory system"),
    (520, "digestive system"),
    (580, "genitourinary system"),
    (630, "pregnancy and childbirth"),
    (680, "skin"),
    (710, "musculoskeletal system"),
    (740, "congenital anomalies"),
    (760, "perinatal conditions"),
    (780, "symptoms and ill-defined conditions"),
    (800, "injury and poisoning"),
)
CHAPTERS = (
    *(name for _, name in FIRST_CODES),
    "factors influencing health (V)",
    "external causes (E)",
)
NO_CHAPTER = "no chapter"

NUMERIC = re.compile(r"(?!000)\d{3}\d{0,2}")
V_CODE = re.compile(r"V\d{2}\d{0,2}")
E_CODE = re.compile(r"E\d{3}\d?")
ICD10 = re.compile(r"[A-TV-Z]\d[0-9AB][0-9A-Z]{0,4}")

# The letters of ICD-10 in the order of CHAPTERS. D is neoplasms up to D49 and blood from D50 on; U,
# kept for special purposes, has no place in ICD-9.
LETTERS = (
    "AB", "C", "E", "", "F", "GH", "I", "J", "K", "N", "O", "L", "M", "Q", "P",
    "R", "ST", "Z", "VWXY",
)  # fmt: skip


def chapter9(code: str) -> str:
    """The chapter of an ICD-9-CM code, written with its point or without.

    >>> chapter9("41401"), chapter9("V58.61"), chapter9("E8788")
    ('circulatory system', 'factors influencing health (V)', 'external causes (E)')
    >>> chapter9("OTHER")
    'no chapter'
    """
    code = code.replace(".", "")
    if NUMERIC.fullmatch(code):
        return CHAPTERS[bisect_right(FIRST_CODES, int(code[:3]), key=lambda first: first[0]) - 1]
    if V_CODE.fullmatch(code):
        return CHAPTERS[17]
    return CHAPTERS[18] if E_CODE.fullmatch(code) else NO_CHAPTER


def chapter10(code: str) -> str:
    """The chapter of ICD-9 that has the subject of an ICD-10-CM code's chapter.

    >>> chapter10("I10"), chapter10("D62"), chapter10("Z87.891")
    ('circulatory system', 'blood', 'factors influencing health (V)')
    """
    code = code.replace(".", "")
    if not ICD10.fullmatch(code):
        return NO_CHAPTER
    if code[0] == "D":
        return CHAPTERS[1 if code[1] < "5" else 3]
    return next(name for name, letters in zip(CHAPTERS, LETTERS, strict=True) if code[0] in letters)


def labelled(chapters: Iterable[str]) -> tuple[Ints, tuple[str, ...]]:
    """Chapters as labels, and the 19 classes; ``no chapter`` is a 20th where one is needed.

    >>> labels, classes = labelled([chapter9("486"), chapter9("V0482")])
    >>> labels, len(classes)
    (array([ 7, 17]), 19)
    """
    places, found = numbered(chapters)
    classes = CHAPTERS + ((NO_CHAPTER,) if NO_CHAPTER in found else ())
    return np.array([classes.index(name) for name in found], dtype=np.int64)[places], classes


MIMIC_URL = "https://physionet.org/files/mimic-iv-demo/2.2/hosp"
PRESCRIPTIONS = "mimic-iv-demo-2.2/hosp/prescriptions.csv.gz"
DIAGNOSES = "mimic-iv-demo-2.2/hosp/diagnoses_icd.csv.gz"
MIMIC_SHA256 = {
    PRESCRIPTIONS: "33c392ba5b9299b08eca0a61911ba106f0aebdba26ed31b856bb9ffd49fe3654",
    DIAGNOSES: "958565670c0b3903c0c12825366dc2bae8561d2d55f16feac0c949dd630ed3e4",
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


def load_mimic() -> Demo:
    """Both streams, downloaded if they are not on this machine."""
    return MIMIC.load()


def _parse_mimic(files: Files) -> Demo:
    """Both streams; an error if they are incomplete."""
    demo = Demo(
        _prescriptions(gunzip(files[PRESCRIPTIONS], PRESCRIPTIONS)),
        _diagnoses(gunzip(files[DIAGNOSES], DIAGNOSES)),
    )
    found = len(demo.prescriptions), len(demo.diagnoses)
    if found != (N_PRESCRIPTIONS, N_DIAGNOSES):
        raise DataDamaged(
            f"there are {found[0]:,} prescriptions and {found[1]:,} diagnoses, "
            f"there should be {N_PRESCRIPTIONS:,} and {N_DIAGNOSES:,}"
        )
    return demo


def _prescriptions(table: bytes) -> Events:
    """Drugs and routes, at the time each was to start."""
    drugs, routes, starts = columns(table, ["drug", "route", "starttime"], PRESCRIPTIONS)
    items, names = numbered(drugs)
    labels, classes = numbered(routes)
    return Events(items, labels, seconds(starts, PRESCRIPTIONS), names, classes, PRESCRIPTIONS)


def _diagnoses(table: bytes) -> Events:
    """Codes, named like ``9:4139`` and ``10:I10`` for their edition of the ICD, and chapters."""
    codes, editions = columns(table, ["icd_code", "icd_version"], DIAGNOSES)
    pairs = [(edition.strip(), code.strip()) for edition, code in zip(editions, codes, strict=True)]
    labels, classes = labelled(
        chapter9(code) if edition == "9" else chapter10(code) for edition, code in pairs
    )
    items, names = numbered(":".join(pair) for pair in pairs)
    return Events(items, labels, np.arange(len(items)), names, classes, DIAGNOSES)


def _download_mimic() -> Files:
    return {
        name: download(f"{MIMIC_URL}/{name.rpartition('/')[2]}", sha256)
        for name, sha256 in MIMIC_SHA256.items()
    }


MIMIC = DataSet(
    name="mimic",
    licence="Open Database License 1.0",
    advice=f"Put prescriptions.csv.gz and diagnoses_icd.csv.gz from {MIMIC_URL}/ as "
    f"{PRESCRIPTIONS} and {DIAGNOSES}",
    choices=((PRESCRIPTIONS, DIAGNOSES),),
    sources=(_download_mimic,),
    parse=_parse_mimic,
)


SYNPUF_NAME = "DE1_0_2008_to_2010_Inpatient_Claims_Sample_1"
CSV, ZIP = f"de-synpuf/{SYNPUF_NAME}.csv", f"de-synpuf/{SYNPUF_NAME}.zip"
CLAIMS = "de-synpuf/dx_stream.csv.gz"
SYNPUF_URL = (
    "https://www.cms.gov/research-statistics-data-and-systems/downloadable-public-use-files"
    f"/synpufs/downloads/{SYNPUF_NAME.lower()}.zip"
)
CODE_COLUMNS = [f"ICD9_DGNS_CD_{place}" for place in range(1, 11)]
N_CLAIMS = 66_773


def load_synpuf() -> Events:
    """All codes, downloaded if they are not on this machine; the paper takes the first 150,000."""
    return SYNPUF.load()


def _parse_synpuf(files: Files) -> Events:
    """The stream from any of its forms."""
    if CLAIMS in files:
        return _from_claims(gunzip(files[CLAIMS], CLAIMS))
    if ZIP in files:
        (table,) = unzip(files[ZIP], [".csv"], ZIP).values()
        return _from_official(table, ZIP)
    return _from_official(files[CSV], CSV)


def _from_official(table: bytes, source: str) -> Events:
    """Codes of the official file, claim after claim, 1 to 10, blanks left out."""
    dates, *codes = columns(table, ["CLM_FROM_DT", *CODE_COLUMNS], source)
    if len(dates) != N_CLAIMS:
        raise DataDamaged(f"{source} has {len(dates):,} claims, it should have {N_CLAIMS:,}")
    claims = [[code for code in map(str.strip, row) if code] for row in zip(*codes, strict=True)]
    return _events(claims, dates, source)


def _from_claims(table: bytes) -> Events:
    """Codes of the table of claims, claim after claim."""
    dates, codes = columns(table, ["clm_from_dt", "codes"], CLAIMS)
    return _events([row.split() for row in codes], dates, CLAIMS)


def _events(claims: Sequence[Sequence[str]], dates: Sequence[str], source: str) -> Events:
    """One event for each code of each claim, at the date the claim begins."""
    items, names = numbered(code for claim in claims for code in claim)
    chapter, classes = labelled(map(chapter9, names))
    times = np.repeat(seconds(dates, source), [len(claim) for claim in claims])
    return Events(items, chapter[items], times, names, classes, source)


def _download_synpuf() -> Files:
    return {ZIP: download(SYNPUF_URL)}


SYNPUF = DataSet(
    name="synpuf",
    licence="CMS public use file, under its disclaimer and user agreement",
    advice=f"Put {SYNPUF_URL} as {ZIP}, or unpacked as {CSV},",
    choices=((CSV,), (ZIP,), (CLAIMS,)),
    sources=(_download_synpuf,),
    parse=_parse_synpuf,
)
