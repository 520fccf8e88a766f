"""The chapters of diagnosis codes: the 19 of ICD-9-CM, and those of ICD-10-CM laid onto them."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable

import numpy as np

from .events import numbered
from .synthetic import Ints

FIRST = (
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
    *(name for _, name in FIRST),
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
        return CHAPTERS[bisect_right(FIRST, int(code[:3]), key=lambda first: first[0]) - 1]
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
