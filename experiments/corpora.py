"""--corpus and its kin: the same flags, and the same corpus, for every script."""

import dataclasses
import hashlib
from typing import Any

import numpy as np
from absl import flags

from dwl_jax import data
from dwl_jax.data import Corpus

CORPORA = ("synthetic", "nhds", "mimic3", "mimic4", "lines", "folder", "npz")
_CODED = ("nhds", "mimic3", "mimic4")
_TEXTS = ("lines", "folder")
_FLAGS = {  # that a corpus listens to
    "synthetic": {"num_docs", "corpus_seed"},
    **dict.fromkeys(_CODED, {"codes", "min_diseases", "min_procedures", "min_count"}),
    **dict.fromkeys(_TEXTS, {"min_docs", "max_words", "stop_words", "encoding"}),
    "npz": {"min_count"},
}

_CORPUS = flags.DEFINE_enum(
    "corpus",
    "synthetic",
    CORPORA,
    "synthetic: drawn, needs no file. nhds: the survey's file. mimic3, mimic4: the "
    "folder with the tables. lines: one text per line, label<tab>text or text. "
    "folder: a folder of texts per class. npz: saved by dwl_jax.data.save.",
)
_PATH = flags.DEFINE_string("path", None, "File or folder of the corpus.")
_NUM_DOCS = flags.DEFINE_integer(
    "num_docs", 11_086, "synthetic: how many.", lower_bound=1
)
_CORPUS_SEED = flags.DEFINE_integer("corpus_seed", 0, "synthetic: of the draw.")
_CODES = flags.DEFINE_enum(
    "codes", "paper81", ["paper81", "all"], "Hospital data: the paper's 81 or all."
)
_MIN_DISEASES = flags.DEFINE_integer(
    "min_diseases", 2, "Hospital data: drop admissions with fewer.", lower_bound=0
)
_MIN_PROCEDURES = flags.DEFINE_integer(
    "min_procedures", 2, "Hospital data: drop admissions with fewer.", lower_bound=0
)
_MIN_COUNT = flags.DEFINE_integer(
    "min_count", 1, "Hospital data and npz: drop words in fewer documents.", 1
)
_MIN_DOCS = flags.DEFINE_integer(
    "min_docs", 1, "Texts: drop words in fewer documents.", lower_bound=1
)
_MAX_WORDS = flags.DEFINE_integer(
    "max_words", None, "Texts: keep so many words.", lower_bound=1
)
_STOP_WORDS = flags.DEFINE_bool("stop_words", False, "Texts: drop English stop words.")
_ENCODING = flags.DEFINE_string("encoding", "utf-8", "Texts: encoding of the files.")


@dataclasses.dataclass(frozen=True)
class Spec:
    """Which corpus: plain values, so that a run can note it and find it again."""

    corpus: str = "synthetic"
    path: str | None = None
    num_docs: int = 11_086
    corpus_seed: int = 0
    codes: str = "paper81"
    min_diseases: int = 2
    min_procedures: int = 2
    min_count: int = 1
    min_docs: int = 1
    max_words: int | None = None
    stop_words: bool = False
    encoding: str = "utf-8"

    def __post_init__(self):
        if self.corpus not in CORPORA:
            raise ValueError(f"--corpus={self.corpus}: not among {', '.join(CORPORA)}.")
        if self.corpus == "synthetic" and self.path is not None:
            raise ValueError("--path: --corpus=synthetic reads no file.")
        if self.corpus != "synthetic" and not self.path:
            raise ValueError(f"--path is needed with --corpus={self.corpus}.")
        for field in dataclasses.fields(self)[2:]:
            idle = field.name not in _FLAGS[self.corpus]
            if idle and getattr(self, field.name) != field.default:
                raise ValueError(
                    f"--{field.name} says nothing to --corpus={self.corpus}."
                )

    @classmethod
    def from_flags(cls) -> "Spec":
        names = [field.name for field in dataclasses.fields(cls)]
        return cls(**{name: flags.FLAGS[name].value for name in names})

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


def load(spec: Spec) -> Corpus:
    """The corpus of a Spec."""
    if spec.corpus == "synthetic":
        return data.synthetic_admissions(spec.num_docs, spec.corpus_seed)
    try:
        if spec.corpus in _CODED:
            read = getattr(data, f"read_{spec.corpus}")
            minima = {
                "min_diseases": spec.min_diseases,
                "min_procedures": spec.min_procedures,
            }
            if spec.min_count == 1:
                return read(spec.path, codes=spec.codes, **minima)
            corpus = read(spec.path, codes=spec.codes)
            corpus = data.select_min_count(corpus, spec.min_count)
            return data.select_docs(corpus, **minima)
        if spec.corpus == "npz":
            corpus = data.load(spec.path)
            few = spec.min_count > 1
            return data.select_min_count(corpus, spec.min_count) if few else corpus
        name = {"lines": "read_labelled_lines", "folder": "read_folder"}[spec.corpus]
        return getattr(data, name)(
            spec.path,
            encoding=spec.encoding,
            min_docs=spec.min_docs,
            max_words=spec.max_words,
            stop_words=data.english_stop_words() if spec.stop_words else (),
        )
    except (OSError, ValueError) as error:
        raise ValueError(f"--path: {error}") from error


def fewer(spec: Spec, corpus: Corpus, num_words: int) -> str:
    """The flag that leaves a corpus so many words, or a few less."""
    if "max_words" in _FLAGS[spec.corpus]:
        return f"--max_words={num_words}"
    seen = np.sort(np.bincount(corpus.counts.indices, minlength=corpus.num_words))
    least = max(2, int(seen[-num_words - 1]) + 1)
    return f"--min_count={least} (leaves about {int((seen >= least).sum()):,})"


def digest(corpus: Corpus) -> str:
    """SHA-256 of words and counts: says whether two corpora are one."""
    sha = hashlib.sha256("\n".join(corpus.vocab).encode())
    for x in (corpus.counts.indptr, corpus.counts.indices, corpus.counts.data):
        sha.update(np.ascontiguousarray(x).astype("<f8").tobytes())
    return sha.hexdigest()
