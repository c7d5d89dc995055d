"""MIMIC readers on small files in the exact column layout of the real tables."""

import csv
import gzip
import io

import numpy as np
import pytest
from absl import logging

from dwl_jax import data

ADMISSIONS3 = (
    "ROW_ID,SUBJECT_ID,HADM_ID,ADMITTIME,DISCHTIME,DEATHTIME,ADMISSION_TYPE,"
    "ADMISSION_LOCATION,DISCHARGE_LOCATION,INSURANCE,LANGUAGE,RELIGION,MARITAL_STATUS,"
    "ETHNICITY,EDREGTIME,EDOUTTIME,DIAGNOSIS,HOSPITAL_EXPIRE_FLAG,HAS_CHARTEVENTS_DATA"
)
ADMISSIONS4 = (
    "subject_id,hadm_id,admittime,dischtime,deathtime,admission_type,admit_provider_id,"
    "admission_location,discharge_location,insurance,language,marital_status,race,"
    "edregtime,edouttime,hospital_expire_flag"
)
MIMIC3 = {
    "ADMISSIONS": (
        ADMISSIONS3,
        [
            {"HADM_ID": 777001, "ADMISSION_TYPE": "EMERGENCY", "FLAG": 1},
            {"HADM_ID": 777002, "ADMISSION_TYPE": "NEWBORN", "FLAG": 0},
            {"HADM_ID": 777003, "ADMISSION_TYPE": "", "FLAG": ""},
            {"HADM_ID": 777004, "ADMISSION_TYPE": "URGENT", "FLAG": 0},
        ],
    ),
    "DIAGNOSES_ICD": (
        "ROW_ID,SUBJECT_ID,HADM_ID,SEQ_NUM,ICD9_CODE",
        [
            (1, 9, 777002, 1, "V3001"),
            (2, 9, 777001, 1, "0389"),
            (3, 9, 777001, 2, "0389"),
            (4, 9, 777001, "", ""),
            (5, 9, 777003, 1, "389"),
            (6, 9, 777001, 3, "4019"),
        ],
    ),
    "PROCEDURES_ICD": (
        "ROW_ID,SUBJECT_ID,HADM_ID,SEQ_NUM,ICD9_CODE",
        [(1, 9, 777001, 1, "0331"), (2, 9, 777001, 2, "3893"), (3, 9, 1, 1, "3893")],
    ),
    "D_ICD_DIAGNOSES": (
        "ROW_ID,ICD9_CODE,SHORT_TITLE,LONG_TITLE",
        [
            (1, "0389", "Septicemia NOS", "Unspecified septicemia"),
            (2, "V3001", "x", 'Single liveborn, "by" cesarean'),
            (3, "4019", "x", "Unspecified essential hypertension"),
        ],
    ),
    "D_ICD_PROCEDURES": (
        "ROW_ID,ICD9_CODE,SHORT_TITLE,LONG_TITLE",
        [(1, "0331", "Spinal tap", "Spinal tap"), (2, "3893", "x", "Venous cath NEC")],
    ),
}
MIMIC4 = {
    "admissions": (
        ADMISSIONS4,
        [
            {"hadm_id": 888001, "admission_type": "EW EMER.", "FLAG": 0},
            {"hadm_id": 888002, "admission_type": "URGENT", "FLAG": 1},
        ],
    ),
    "diagnoses_icd": (
        "subject_id,hadm_id,seq_num,icd_code,icd_version",
        [
            (9, 888001, 1, "0389", 9),
            (9, 888002, 1, "A419", 10),
            (9, 888002, 2, "V3001", 10),
            (9, 888001, 2, "V3001  ", 9),
        ],
    ),
    "procedures_icd": (
        "subject_id,hadm_id,seq_num,chartdate,icd_code,icd_version",
        [
            (9, 888001, 1, "2150-01-01", "0331", 9),
            (9, 888002, 1, "2150-01-01", "02HV33Z", 10),
        ],
    ),
    "d_icd_diagnoses": (
        "icd_code,icd_version,long_title",
        [
            ("0389", 9, "Unspecified septicemia"),
            ("A419", 10, "Sepsis, unspecified organism"),
            ("V3001", 9, "Liveborn"),
            ("V3001", 10, "Occupant of three-wheeled motor vehicle"),
        ],
    ),
    "d_icd_procedures": (
        "icd_code,icd_version,long_title",
        [("0331", 9, "Spinal tap"), ("02HV33Z", 10, "Insertion of infusion device")],
    ),
}


def as_text(header, rows):
    """CSV as PhysioNet writes it: text quoted, numbers not."""
    out = io.StringIO()
    names = header.split(",")
    csv.writer(out, lineterminator="\n").writerow(names)
    write = csv.writer(out, quoting=csv.QUOTE_NONNUMERIC, lineterminator="\n")
    for row in rows:
        if isinstance(row, dict):
            flag = next(n for n in names if n.lower() == "hospital_expire_flag")
            row = row | {flag: row["FLAG"]}
            row = [row.get(name, "John Doe") for name in names]
        write.writerow(row)
    return out.getvalue()


def put(folder, tables, *, lower=False, packed=False, **change):
    folder.mkdir(exist_ok=True)
    for name, (header, rows) in tables.items():
        text = change.get(name.lower(), as_text(header, rows)).encode("utf-8")
        file = folder / f"{name.lower() if lower else name}.csv{'.gz' * packed}"
        file.write_bytes(gzip.compress(text) if packed else text)
    return folder


def change3(name, *edits):
    text = as_text(*MIMIC3[name.upper()])
    for old, new in edits:
        assert old in text
        text = text.replace(old, new, 1)
    return {name: text}


@pytest.mark.parametrize("lower", [False, True])
@pytest.mark.parametrize("packed", [False, True])
def test_mimic3(tmp_path, lower, packed):
    c = data.read_mimic3(put(tmp_path / "m", MIMIC3, lower=lower, packed=packed))
    assert c.vocab == ("d_0389", "d_389", "d_4019", "d_V3001", "p_0331", "p_3893")
    assert c.kinds == ("disease",) * 4 + ("procedure",) * 2
    assert c.descriptions[0] == "Unspecified septicemia"
    assert c.descriptions[1] == ""  # not that of 0389
    assert c.descriptions[3] == 'Single liveborn, "by" cesarean'
    want = [[1, 0, 1, 0, 1, 1], [0, 0, 0, 1, 0, 0], [0, 1, 0, 0, 0, 0]]
    np.testing.assert_array_equal(c.counts.toarray(), want)
    assert c.ids.tolist() == ["777001", "777002", "777003"]
    assert c.labels["died"].tolist() == ["died", "alive", ""]
    assert c.labels["admission_type"].tolist() == ["emergency", "newborn", ""]
    for said in (
        "4 admissions, kept 3 over 6 codes",
        "dropped 1 without a code",
        "1 repeated codes counted once",
        "skipped 1 rows with an empty code",
        "skipped 1 rows of an admission not in the admissions table",
        "1 rows with a code in no table kept without a description: d_389",
    ):
        assert said in c.history[0]


def test_mimic3_paper_subset(tmp_path):
    folder = put(tmp_path / "m", MIMIC3)
    c = data.read_mimic3(folder, codes="paper81", min_diseases=2, min_procedures=2)
    assert c.num_words == 81 and c.ids.tolist() == ["777001"]
    found = {c.vocab[j] for j in c.counts.indices}
    assert found == {"d_0389", "d_4019", "p_0331", "p_3893"}


@pytest.mark.parametrize("where", [".", "hosp"])
def test_mimic4_keeps_versions_apart(tmp_path, where):
    (tmp_path / where).mkdir(exist_ok=True)
    put(tmp_path / where, MIMIC4, packed=True)
    c = data.read_mimic4(tmp_path)
    words = ("d_0389", "d_V3001", "d10_A419", "d10_V3001", "p_0331", "p10_02HV33Z")
    assert c.vocab == words
    want = [[1, 1, 0, 0, 1, 0], [0, 0, 1, 1, 0, 1]]
    np.testing.assert_array_equal(c.counts.toarray(), want)
    assert c.descriptions[1] == "Liveborn"
    assert c.descriptions[3].startswith("Occupant")
    assert c.labels["admission_type"].tolist() == ["ew emer.", "urgent"]
    assert c.labels["died"].tolist() == ["alive", "died"]
    assert data.select_paper81(c).ids.tolist() == ["888001"]


def test_unknown_codes(tmp_path):
    folder = put(tmp_path / "m", MIMIC3)
    c = data.read_mimic3(folder, unknown_codes="drop")
    assert "d_389" not in c.vocab and c.num_docs == 2
    assert "1 rows with a code in no table dropped" in c.history[0]
    with pytest.raises(ValueError, match="ICD.csv, line 6: code '389' is in no table"):
        data.read_mimic3(folder, unknown_codes="error")
    with pytest.raises(ValueError, match="unknown_codes"):
        data.read_mimic3(folder, unknown_codes="?")


BAD3 = {
    "column": (
        change3("diagnoses_icd", ("ICD9_CODE", "CODE")),
        "DIAGNOSES_ICD.csv, line 1: no column 'icd9_code' among the 5 names",
    ),
    "no header": (
        {"admissions": as_text(*MIMIC3["ADMISSIONS"]).partition("\n")[2]},
        "ADMISSIONS.csv, line 1: no column 'hadm_id' among the 19 names",
    ),
    "truncated": (
        change3("diagnoses_icd", (',1,"V3001"', "")),
        "DIAGNOSES_ICD.csv, line 2: 3 fields, where the header has 5",
    ),
    "quote": (
        change3("diagnoses_icd", ('"4019"', '"4019')),
        "DIAGNOSES_ICD.csv, line 7: not a csv row",
    ),
    "duplicate": (
        change3("admissions", ("777002", "777001")),
        "ADMISSIONS.csv, line 3: duplicate hadm_id, as in line 2",
    ),
    "type": (
        change3("admissions", ("NEWBORN", "NEWBORM")),
        "ADMISSIONS.csv, line 3: admission_type is 'NEWBORM', not one of",
    ),
    "flag": (
        change3("admissions", ('"John Doe",0,', '"John Doe",2,')),
        "ADMISSIONS.csv, line 3: hospital_expire_flag is '2'",
    ),
    "id": (
        change3("admissions", ("777002", "777002.0")),
        "ADMISSIONS.csv, line 3: hadm_id is no whole number: other",
    ),
    "no id": (
        change3("procedures_icd", ("777001", "")),
        "PROCEDURES_ICD.csv, line 2: hadm_id is no whole number: empty",
    ),
    "dot": (
        change3("diagnoses_icd", ('"4019"', '"401.9"')),
        "DIAGNOSES_ICD.csv, line 7: malformed code '401.9'",
    ),
    "empty file": ({"d_icd_procedures": ""}, "D_ICD_PROCEDURES.csv: the file is empty"),
    "header only": (
        {"admissions": ADMISSIONS3 + "\n"},
        "ADMISSIONS.csv: no admission after the header",
    ),
    "nul": (
        change3("diagnoses_icd", ('"4019"', '"4019\0"')),
        "DIAGNOSES_ICD.csv, line 7: has a NUL byte",
    ),
}


@pytest.mark.parametrize("case", BAD3)
def test_bad_mimic3_is_named(tmp_path, case):
    change, message = BAD3[case]
    folder = put(tmp_path / "m", MIMIC3, **change)
    with pytest.raises(ValueError) as error:
        data.read_mimic3(folder)
    assert message in str(error.value)
    assert "777" not in str(error.value) and "John" not in str(error.value)


def test_ids_are_named_only_when_asked(tmp_path):
    folder = put(tmp_path / "m", MIMIC3, **BAD3["duplicate"][0])
    with pytest.raises(ValueError, match="duplicate hadm_id 777001, as in line 2"):
        data.read_mimic3(folder, show_ids=True)


def test_no_row_or_id_is_logged(tmp_path, monkeypatch):
    said = []
    for level in ("info", "warning", "error", "debug"):
        monkeypatch.setattr(logging, level, lambda text, *a: said.append(text % a))
    c = data.read_mimic3(put(tmp_path / "m", MIMIC3))
    data.split(data.select_docs(c, min_diseases=1), fractions=(0.5, 0.5))
    assert len(said) >= 3
    text = " ".join(said) + repr(c)
    assert "777" not in text and "John" not in text


def test_bad_encoding_and_version(tmp_path):
    folder = put(tmp_path / "m", MIMIC3)
    path = folder / "D_ICD_DIAGNOSES.csv"
    path.write_bytes(path.read_bytes().replace(b"Unspecified", b"Unsp\xe9cified"))
    with pytest.raises(ValueError, match="DIAGNOSES.csv, line 2: byte 0xe9 is not utf"):
        data.read_mimic3(folder)
    four = as_text(*MIMIC4["diagnoses_icd"]).replace(",9\n", ",11\n", 1)
    folder = put(tmp_path / "n", MIMIC4, diagnoses_icd=four)
    with pytest.raises(ValueError, match="icd.csv, line 2: icd_version is '11'"):
        data.read_mimic4(folder)


def test_files_missing_double_or_misnamed(tmp_path):
    folder = put(tmp_path / "m", MIMIC3)
    plain = folder / "ADMISSIONS.csv"
    packed = folder / "ADMISSIONS.csv.gz"
    packed.write_bytes(plain.read_bytes())
    with pytest.raises(ValueError, match="which of ADMISSIONS.csv, ADMISSIONS.csv.gz"):
        data.read_mimic3(folder)
    plain.unlink()
    with pytest.raises(ValueError, match="the name means gzip, the first bytes are pl"):
        data.read_mimic3(folder)
    packed.unlink()
    with pytest.raises(FileNotFoundError, match="no admissions.csv"):
        data.read_mimic3(folder)
    with pytest.raises(ValueError, match="expected the folder"):
        data.read_mimic3(tmp_path / "absent")
