"""Word2Vec vectors trained on a corpus itself (gensim, the extra `embeddings`)."""

import numpy as np

from dwl_jax.data.corpus import Corpus
from dwl_jax.data.vectors import Vectors, fill_missing

WHICH = ("input", "output", "sum")
_MAX_SENTENCE = 10_000  # gensim leaves out what is beyond


def train_word2vec(
    corpus: Corpus,
    *,
    dim: int = 50,
    which: str = "sum",
    epochs: int = 20,
    window: int | None = None,
    negative: int = 5,
    seed: int = 0,
) -> Vectors:
    """Trains skip-gram Word2Vec on a corpus with gensim (extra `embeddings`).

    One worker and a seed: the same call gives the same vectors. No word is left out for
    being frequent (`sample=0`: with 81 codes gensim's default drops nearly all).

    Example:
      `X, missing = train_word2vec(corpus, dim=50)`

    Args:
      corpus: documents are sentences; a word comes as often as it counts.
      dim: size of the vectors.
      which: "input", "output" or "sum" of both. They differ much: neighbours by input
        vectors occur in like documents, by the sum also in the same document.
      epochs: passes.
      window: words to each side that count as context; None is the whole document.
      negative: samples per positive pair.
      seed: of initial vectors and of sampling.

    Returns:
      Vectors; `missing` are words that never occur in this corpus.
    """
    if which not in WHICH:
        raise ValueError(f"which must be one of {WHICH}, got {which!r}.")
    try:
        from gensim.models import Word2Vec
    except ImportError as error:
        raise ImportError(
            "train_word2vec needs gensim: pip install 'dwl-jax[embeddings]'"
        ) from error
    sentences = _sentences(corpus)
    longest = max(map(len, sentences))
    model = Word2Vec(
        sentences,
        vector_size=dim,
        window=longest if window is None else window,
        shrink_windows=False,  # else the window is a random part of it
        sg=1,
        hs=0,
        negative=negative,
        sample=0,
        min_count=1,
        epochs=epochs,
        seed=seed,
        workers=1,
    )
    X = {
        "input": model.wv.vectors,
        "output": model.syn1neg,
        "sum": model.wv.vectors + model.syn1neg,
    }[which]
    found = {word: X[j] for word, j in model.wv.key_to_index.items()}
    return fill_missing(found, corpus.vocab, seed=seed)


def _sentences(corpus: Corpus) -> list[list[str]]:
    """Documents as lists of words, repeated by count, cut where gensim stops."""
    csr = corpus.counts
    if csr.dtype.kind != "i":
        raise ValueError("Word2Vec needs counts, this corpus has fractional weights.")
    words = np.array(corpus.vocab, dtype=object)[np.repeat(csr.indices, csr.data)]
    ends = np.concatenate([[0], np.cumsum(csr.data, dtype=np.int64)])[csr.indptr]
    return [
        words[start : min(start + _MAX_SENTENCE, end)].tolist()
        for first, end in zip(ends[:-1], ends[1:], strict=True)
        for start in range(first, end, _MAX_SENTENCE)
    ]
