"""CMS DE-SynPUF: diagnosis codes on synthetic inpatient claims; what is recalled is their chapter.

Read from the official inpatient file of Sample 1, packed or not, or from ``dx_stream.csv.gz``, a
table of claims of other samples with all codes of a claim in one column. CMS publishes no digests,
and we have not fetched the official file; it must have the right columns and 66,773 claims.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .archives import gunzip, unzip
from .dataset import DataSet, Files
from .events import Events, numbered
from .fetch import Source, download
from .icd import chapter9, labelled
from .places import DataDamaged
from .tables import columns, seconds

FOLDER = "de-synpuf"
NAME = "DE1_0_2008_to_2010_Inpatient_Claims_Sample_1"
CSV, ZIP, CLAIMS = f"{FOLDER}/{NAME}.csv", f"{FOLDER}/{NAME}.zip", f"{FOLDER}/dx_stream.csv.gz"
SOURCE = Source(
    "https://www.cms.gov/research-statistics-data-and-systems/downloadable-public-use-files"
    f"/synpufs/downloads/{NAME.lower()}.zip"
)
CODES = [f"ICD9_DGNS_CD_{place}" for place in range(1, 11)]
N_CLAIMS = 66_773


def load() -> Events:
    """The stream, from this machine or fetched; the paper takes its first 150,000 codes."""
    return SET.load()


def parse(files: Files) -> Events:
    """The stream from any of its forms."""
    if CLAIMS in files:
        return from_claims(gunzip(files[CLAIMS], CLAIMS))
    if ZIP in files:
        (table,) = unzip(files[ZIP], ["*.[cC][sS][vV]"], ZIP).values()
        return from_official(table, ZIP)
    return from_official(files[CSV], CSV)


def from_official(table: bytes, source: str) -> Events:
    """Codes of the official file, claim after claim, 1 to 10, blanks left out."""
    dates, *codes = columns(table, ["CLM_FROM_DT", *CODES], source)
    if len(dates) != N_CLAIMS:
        raise DataDamaged(f"{source} has {len(dates):,} claims, it should have {N_CLAIMS:,}")
    claims = [[code for code in map(str.strip, row) if code] for row in zip(*codes, strict=True)]
    return _events(claims, dates, source)


def from_claims(table: bytes) -> Events:
    """Codes of the table of claims, claim after claim."""
    dates, codes = columns(table, ["clm_from_dt", "codes"], CLAIMS)
    return _events([row.split() for row in codes], dates, CLAIMS)


def _events(claims: Sequence[Sequence[str]], dates: Sequence[str], source: str) -> Events:
    """One event for each code of each claim, at the date the claim begins."""
    items, names = numbered(code for claim in claims for code in claim)
    chapter, classes = labelled(map(chapter9, names))
    times = np.repeat(seconds(dates, source), [len(claim) for claim in claims])
    return Events(items, chapter[items], times, names, classes, source)


def _download() -> Files:
    return {ZIP: download(SOURCE)}


SET = DataSet(
    name="synpuf",
    licence="CMS public use file, under its disclaimer and user agreement",
    advice=f"Put {SOURCE.url} as {ZIP}, or unpacked as {CSV},",
    choices=((CSV,), (ZIP,), (CLAIMS,)),
    sources=(_download,),
    parse=parse,
)
