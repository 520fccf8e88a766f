"""Streams that look like the real ones, made by arithmetic; no line of the real ones is here."""

import gzip
from io import BytesIO
from zipfile import ZipFile

from reproduction.data import loghub, medical, movielens


def packed(files):
    """A zip archive of files."""
    made = BytesIO()
    with ZipFile(made, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return made.getvalue()


def lay(folder, files):
    """Put files below a folder."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def ratings(n_ratings=movielens.N_RATINGS, n_movies=movielens.N_MOVIES):
    """User, movie, rating, time; not in order of time, and often at the same time."""
    for i in range(n_ratings):
        yield 1 + i % 943, 1 + i * 7 % n_movies, 1 + i % 5, 880_000_000 + i * 31 % 9973


def genres(movie):
    """One or two genres of a movie, by their places."""
    return sorted({movie % 19, movie * 5 % 19})


def official_movielens(**sizes):
    lines = ["\t".join(map(str, row)) for row in ratings(**sizes)]
    movies = []
    for movie in range(1, sizes.get("n_movies", movielens.N_MOVIES) + 1):
        flags = "|".join("1" if place in genres(movie) else "0" for place in range(19))
        movies.append(f"{movie}|Café {movie} (1995)|01-Jan-1995||http://there/{movie}|{flags}")
    data, item = movielens.OFFICIAL
    return {
        data: ("\n".join(lines) + "\n").encode(),
        item: ("\n".join(movies) + "\n").encode("latin-1"),
    }


def atomic_movielens(**sizes):
    lines = ["user_id:token\titem_id:token\trating:float\ttimestamp:float"]
    lines += ["\t".join(map(str, row)) for row in ratings(**sizes)]
    movies = ["item_id:token\tmovie_title:token_seq\trelease_year:token\tclass:token_seq"]
    for movie in range(1, sizes.get("n_movies", movielens.N_MOVIES) + 1):
        words = " ".join(movielens.GENRES[place] for place in genres(movie))
        movies.append(f"{movie}\tCafé {movie}\t1995\t{words}")
    return {
        name: ("\n".join(rows) + "\n").encode()
        for name, rows in zip(movielens.ATOMIC, (lines, movies), strict=True)
    }


def log(system, n_lines=loghub.N_LINES, n_events=14):
    """The files of a system, both versions of the truth."""
    raw, truth = [], ["LineId,Label,Timestamp,Content,EventId,EventTemplate"]
    for i in range(n_lines):
        event, time = i % n_events, 1_117_838_570 + i * 60
        content = f'"event {event}, said ""{i}"""'
        raw.append(f'- {time} INFO event {event}, said "{i}"')
        truth.append(f'{i + 1},-,{time},{content},E{event},"event {event}, said ""<*>"""')
    table = ("\r\n".join(truth) + "\r\n").encode()
    return {
        f"loghub_2k/{system}/{system}_2k.log": "\r\n".join(raw).encode(),
        f"loghub_2k/{system}/{system}_2k.log_structured.csv": table,
        f"loghub_2k_corrected/{system}/{system}_2k.log_structured_corrected.csv": table.replace(
            b"<*>", b"<number>"
        ),
    }


def demo(n_prescriptions=medical.N_PRESCRIPTIONS, n_diagnoses=medical.N_DIAGNOSES):
    """Drugs 0 to 99, drug 7 by two routes; codes of both editions by turns."""
    drugs = ["subject_id,starttime,drug,route"]
    for i in range(n_prescriptions):
        route = "IV" if i % 200 == 7 else "PO"
        drugs.append(f'1,2150-01-01 00:00:{i % 60:02},"Drug {i % 100}, oral ",{route}')
    codes = ["subject_id,hadm_id,seq_num,icd_code,icd_version"]
    for i in range(n_diagnoses):
        codes.append(f"1,2,{i},{'I10,10' if i % 2 else 'V5861,9'}")
    return {
        name: gzip.compress(("\n".join(rows) + "\n").encode(), mtime=0)
        for name, rows in ((medical.PRESCRIPTIONS, drugs), (medical.DIAGNOSES, codes))
    }


def claims(n_claims=medical.N_CLAIMS):
    """Date and codes of each claim; every fifth date is blank."""
    for i in range(n_claims):
        date = "" if i % 5 == 4 else f"2009{1 + i % 12:02}{1 + i % 28:02}"
        yield date, ["41401", f"V{10 + i % 80}", f"E{800 + i % 200}"][: 1 + i % 3]


def official_synpuf(n_claims=medical.N_CLAIMS):
    """The official table; codes have blanks before, between and after them."""
    rows = [
        "DESYNPUF_ID,CLM_ID,CLM_FROM_DT,ADMTNG_ICD9_DGNS_CD,"
        + ",".join(medical.CODE_COLUMNS)
        + ",X"
    ]
    for i, (date, codes) in enumerate(claims(n_claims)):
        cells = ["", *codes[:2], "", *codes[2:]]
        rows.append(",".join(["A", str(i), date, "486", *cells, *[""] * (10 - len(cells)), ""]))
    return ("\r\n".join(rows) + "\r\n").encode()


def claims_table(n_claims):
    rows = ["sample,clm_id,clm_from_dt,codes"]
    rows += [f"1,{i},{date},{' '.join(codes)}" for i, (date, codes) in enumerate(claims(n_claims))]
    return gzip.compress(("\n".join(rows) + "\n").encode(), mtime=0)


def wheel(name, version, files):
    """A wheel that pip takes for one, and its file name."""
    about = f"{name}-{version}.dist-info"
    content = {
        **files,
        f"{about}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n".encode(),
        f"{about}/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{about}/RECORD": b"",
    }
    return f"{name}-{version}-py3-none-any.whl", packed(content)
