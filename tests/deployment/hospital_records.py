"""Write patients of three hospitals and public ones, with the faults that real tables have.

usage: hospital_records.py ADULT PUBLIC_FOLDER CLIENT_FOLDER...

ADULT is the folder with UCI's Adult (adult.data.gz). Its rows become patients, its income
"readmitted". Every folder gets patients.csv. In those of clients some values are missing, one
hospital has a ward that no other has, some ages are typing errors, dates are as people write them,
and every patient has a number.
"""

import csv
import gzip
import sys
from datetime import date, timedelta
from pathlib import Path

import numpy as np

PUBLIC = 5000
WARDS = {"Private": "surgery", "Self-emp-not-inc": "medicine", "Local-gov": "paediatrics"}
HEADER = (
    *("patient-id", "age", "ward", "admitted", "years-insured", "marital", "loss"),
    *("hours", "gain", "readmitted"),
)


def rows(folder):
    """Return patients without faults."""
    rng = np.random.default_rng(3)
    with gzip.open(folder / "adult.data.gz", "rt") as file:
        people = [[value.strip() for value in row] for row in csv.reader(file) if len(row) == 15]
    days = rng.integers(0, 3650, len(people))
    return [
        [
            f"P{number:06d}",
            person[0],
            WARDS.get(person[1], "other"),
            (date(2015, 1, 1) + timedelta(days=int(day))).isoformat(),
            person[4],
            person[5],
            person[11],
            person[12],
            person[10],
            "yes" if person[14].startswith(">") else "no",
        ]
        for number, (person, day) in enumerate(zip(people, days, strict=True))
    ]


def spoil(patients, hospital):
    """Put the faults of one hospital into its table."""
    rng = np.random.default_rng(hospital)
    for place in rng.choice(len(patients), len(patients) // 25, replace=False):
        patients[place][rng.choice([1, 4, 7])] = ""  # a gap
    for place in rng.choice(len(patients), 5, replace=False):
        patients[place][1] = "999"  # an age that is a typing error
    if hospital == 1:
        for place in rng.choice(len(patients), len(patients) // 10, replace=False):
            patients[place][2] = "geriatrics"  # a ward of this hospital alone


def write(folder, patients):
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "patients.csv").open("w", newline="") as file:
        written = csv.writer(file)
        written.writerow(HEADER)
        written.writerows(patients)


def main(adult, public, *clients):
    everybody = rows(Path(adult))
    write(Path(public), everybody[:PUBLIC])
    for hospital, folder in enumerate(clients):
        mine = everybody[PUBLIC + hospital :: len(clients)]
        spoil(mine, hospital)
        write(Path(folder), mine)


if __name__ == "__main__":
    main(*sys.argv[1:])
