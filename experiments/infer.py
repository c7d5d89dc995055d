"""Topic weights and pooled vectors of new documents, by a trained model.

    echo "d_4280 d_5849 p_3995" | python -m experiments.infer --model=RUN --docs=-
    python -m experiments.infer --model=RUN --docs=new.txt --out=weights.csv
    python -m experiments.infer --model=RUN --corpus=nhds --path=FILE --out=weights.npz

--docs holds one document per line, words apart by blanks or commas. CSV columns: id,
loss, topic_0 ..., x_0 ... (the pooled vector). An npz has ids, loss, lam and pooled.
"""

import csv
import sys

import numpy as np
import scipy.sparse as sp
from absl import flags, logging

import dwl_jax
from dwl_jax import data, metrics
from dwl_jax.data import KINDS, Corpus, files
from dwl_jax.documents import from_counts
from experiments import cli, corpora, rundir

_MODEL = flags.DEFINE_string("model", None, "Run or model directory.", required=True)
_DOCS = flags.DEFINE_string(
    "docs", None, "File with a document per line, - for standard input."
)
_OUT = flags.DEFINE_string("out", None, ".csv or .npz to write; none: CSV to stdout.")
_UNKNOWN = flags.DEFINE_enum(
    "unknown", "error", ["error", "drop"], "What to do with words the model lacks."
)
_OBSERVED = flags.DEFINE_enum(
    "observed", None, KINDS, "Judge by words of this kind alone, say disease."
)
_STEPS = flags.DEFINE_integer("num_steps", 100, "Optimiser steps.", lower_bound=1)


def read_lines(path: str) -> Corpus:
    """Documents of words, named by their line; blank lines are passed over."""
    try:
        if path == "-":
            lines = list(sys.stdin)
        else:
            with files.open_lines(path) as stream:
                lines = list(stream)
    except (OSError, ValueError) as error:
        raise ValueError(f"--docs: {error}") from error
    split = [line.replace(",", " ").split() for line in lines]
    rows = [i for i, words in enumerate(split) if words]
    if not rows:
        raise ValueError(f"--docs={path}: no document in it.")
    return data.from_tokens([split[i] for i in rows], ids=[i + 1 for i in rows])


def align(corpus: Corpus, vocab, unknown: str):
    """Counts [M, N] over the model's words, and the ids of documents that have any."""
    index = {word: n for n, word in enumerate(vocab)}
    place = np.array([index.get(word, -1) for word in corpus.vocab])
    entries = corpus.counts.tocoo()
    rows, columns = entries.coords
    known = place[columns] >= 0
    lost = [corpus.vocab[j] for j in np.unique(columns[~known])]
    if lost and unknown == "error":
        raise ValueError(
            f"{len(lost)} words are not in the model: {', '.join(lost[:10])}. "
            "--unknown=drop leaves them out."
        )
    where = (rows[known], place[columns[known]])
    shape = (corpus.num_docs, len(vocab))
    counts = sp.csr_array((entries.data[known], where), shape=shape)
    keep = np.flatnonzero(np.diff(counts.indptr))
    if keep.size == 0:
        raise ValueError("no document has a word of the model.")
    if lost:
        logging.warning(
            "left out %d words that the model lacks, and %d documents without others.",
            len(lost),
            corpus.num_docs - keep.size,
        )
    return counts[keep], corpus.ids[keep].tolist()


def write_csv(handle, ids, result, pooled) -> None:
    K, dim = result.lam.shape[1], pooled.shape[1]
    out = csv.writer(handle, lineterminator="\n")
    topics = [f"topic_{k}" for k in range(K)]
    out.writerow(["id", "loss", *topics, *(f"x_{i}" for i in range(dim))])
    columns = (ids, np.asarray(result.loss), np.asarray(result.lam), pooled)
    for name, loss, lam, x in zip(*columns, strict=True):
        numbers = (f"{v:.9g}" for v in (loss, *lam, *x))
        out.writerow([name, *numbers])


def main(argv):
    del argv
    if _OUT.value and not _OUT.value.endswith((".csv", ".npz")):
        raise ValueError(f"--out={_OUT.value}: must end in .csv or .npz.")
    if bool(_DOCS.value) == bool(flags.FLAGS["corpus"].present):
        raise ValueError("--docs or --corpus: give one of them.")
    spec = None if _DOCS.value else corpora.Spec.from_flags()
    cli.setup_jax()
    saved = rundir.open_model(_MODEL.value)
    corpus = corpora.load(spec) if spec else read_lines(_DOCS.value)
    counts, ids = align(corpus, saved.vocab, _UNKNOWN.value)
    docs = from_counts(counts, dtype=saved.model.X.dtype)
    observed = None
    if _OBSERVED.value:
        observed = np.array([kind == _OBSERVED.value for kind in saved.kinds])
        if not observed.any():
            raise ValueError(f"--observed={_OBSERVED.value}: the model has none.")
    result = dwl_jax.infer_rows(
        counts,
        saved.model,
        saved.hyper,
        cfg=saved.cfg,
        num_steps=_STEPS.value,
        observed=observed,
    )
    pooled = np.asarray(metrics.pool(docs, saved.model.X))
    if _OUT.value is None:
        write_csv(sys.stdout, ids, result, pooled)
    elif _OUT.value.endswith(".npz"):
        lam, loss = np.asarray(result.lam), np.asarray(result.loss)
        np.savez(_OUT.value, ids=np.array(ids), loss=loss, lam=lam, pooled=pooled)
    else:
        with open(_OUT.value, "w", encoding="utf-8", newline="") as handle:
            write_csv(handle, ids, result, pooled)
    logging.info("%d documents, mean loss %.4f", len(ids), float(result.loss.mean()))
    return 0


if __name__ == "__main__":
    cli.run(main)
