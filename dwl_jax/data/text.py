"""Text: lines with labels, folders of files, token lists and document-term matrices.

Rules, the same for every text reader. Tokens: the text in lower case, cut into runs of
letters, digits and underscores; an apostrophe between two of them stays (`apple's`).
Vocabulary: the words in at least `min_docs` documents that are not stop words; if
`max_words` is given, only so many of the most frequent by number of documents, ties in
favour of the first in order; sorted by code point. A document left without words is
dropped, counted and reported.
"""

import array
import functools
import importlib.resources
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
import scipy.sparse as sp

from dwl_jax.data import files
from dwl_jax.data.corpus import MISSING, Corpus, label_array, note

_TOKEN = re.compile(r"\w+(?:'\w+)*")


@functools.cache
def english_stop_words() -> frozenset[str]:
    """Common English words without meaning of their own, for `stop_words`."""
    folder = importlib.resources.files("dwl_jax.data") / "tables"
    text = (folder / "english_stop_words.txt").read_text(encoding="ascii")
    return frozenset(text.split())


def tokenize(text: str) -> list[str]:
    """Lower-case runs of word characters; an apostrophe inside a word stays."""
    return _TOKEN.findall(text.lower())


def from_tokens(
    documents: Iterable[Iterable[str]],
    *,
    labels: Mapping[str, Sequence] | Sequence | None = None,
    ids: Sequence | None = None,
    min_docs: int = 1,
    max_words: int | None = None,
    stop_words: Iterable[str] = (),
    source: str = "from_tokens",
) -> Corpus:
    """A corpus of token lists.

    Example:
      `from_tokens([["a", "b"], ["b"]], labels=["x", "y"])`

    Args:
      documents: lists of tokens, taken as they are.
      labels: one class for each document (named "label"), or name -> classes; None,
        NaN and "" are missing.
      ids: distinct names of documents; their number if not given.
      min_docs: words in fewer documents are dropped.
      max_words: at most so many words, the most frequent.
      stop_words: never words; `english_stop_words()` is a list.
      source: named in the history.

    Returns:
      A Corpus of kind "word" with counts.
    """
    index, row_words, ends = {}, array.array("i"), [0]
    for m, tokens in enumerate(documents):
        if isinstance(tokens, str):
            raise ValueError(f"document {m} is a text, expected a list of its tokens.")
        for token in tokens:
            if not isinstance(token, str) or not token:
                raise ValueError(f"document {m}: {token!r} is no token.")
            row_words.append(index.setdefault(token, len(index)))
        ends.append(len(row_words))
    if not index:
        raise ValueError(f"{source}: no words in {len(ends) - 1} documents.")
    words = sorted(index)
    place = np.empty(len(words), dtype=np.int64)
    place[[index[word] for word in words]] = np.arange(len(words))
    shape = (len(ends) - 1, len(words))
    columns = place[np.frombuffer(row_words, dtype=np.int32)]
    parts = (np.ones(columns.size, np.int32), columns, np.array(ends))
    counts = sp.csr_array(parts, shape=shape)
    counts.sum_duplicates()
    keep = _vocabulary(counts, words, min_docs, max_words, set(stop_words))
    line = f"{source}: {shape[0]:,} documents, kept {keep.size:,} of {shape[1]:,} words"
    if keep.size == 0:
        raise ValueError(f"no word is left: {line}.")
    vocab = [words[j] for j in keep]
    return _finish(counts[:, keep], vocab, labels, ids, line)


def _vocabulary(counts, words, min_docs, max_words, stop) -> np.ndarray:
    """Columns to keep, in order."""
    frequency = np.bincount(counts.indices, minlength=len(words))
    allowed = np.array([word not in stop for word in words])
    keep = np.flatnonzero(allowed & (frequency >= min_docs))
    if max_words is not None:
        keep = keep[np.argsort(-frequency[keep], kind="stable")[:max_words]]
    return np.sort(keep)


def _finish(counts, vocab, labels, ids, line, kinds=None, descriptions=None) -> Corpus:
    """Drops empty documents, says so, and makes the corpus."""
    num_docs, num_words = counts.shape
    if labels is None:
        labels = {}
    elif not isinstance(labels, Mapping):
        labels = {"label": labels}
    labels = {name: label_array(values) for name, values in labels.items()}
    ids = np.arange(num_docs) if ids is None else np.asarray(list(ids))
    for name, values in {"ids": ids, **labels}.items():
        if values.shape != (num_docs,):
            raise ValueError(f"{name}: {values.shape} for {num_docs} documents.")
    keep = np.flatnonzero(np.diff(counts.indptr) > 0)
    line += f"; dropped {num_docs - keep.size:,} documents without words"
    if keep.size == 0:
        raise ValueError(f"no document is left: {line}.")
    return Corpus(
        counts=counts[keep],
        vocab=tuple(vocab),
        kinds=kinds or ("word",) * num_words,
        descriptions=descriptions or ("",) * num_words,
        labels={name: values[keep] for name, values in labels.items()},
        ids=ids[keep],
        history=note((), line),
    )


def from_matrix(
    matrix,
    vocab: Sequence[str] | Mapping[str, int],
    *,
    labels: Mapping[str, Sequence] | Sequence | None = None,
    ids: Sequence | None = None,
    kinds: Sequence[str] | None = None,
    descriptions: Sequence[str] | None = None,
) -> Corpus:
    """A corpus of a document-term matrix.

    Example:
      `cv = CountVectorizer(); X = cv.fit_transform(texts)`, then
      `from_matrix(X, cv.get_feature_names_out())` or `from_matrix(X, cv.vocabulary_)`

    Args:
      matrix: [M, N] counts or weights, an array or scipy sparse.
      vocab: N words, or a mapping from word to column as scikit-learn's `vocabulary_`.
      labels: as `from_tokens`.
      ids: as `from_tokens`.
      kinds: N kinds, "word" if not given.
      descriptions: N texts, "" if not given.

    Returns:
      A Corpus; rows that are all 0 are dropped, counted and reported.
    """
    if not sp.issparse(matrix) and np.ndim(matrix) != 2:
        raise ValueError(f"matrix: shape {np.shape(matrix)}, expected [docs, words].")
    counts = sp.csr_array(matrix, copy=True)
    counts.sum_duplicates()
    counts.eliminate_zeros()
    if isinstance(vocab, Mapping):
        if sorted(map(int, vocab.values())) != list(range(counts.shape[1])):
            raise ValueError(f"vocab does not name columns 0 to {counts.shape[1] - 1}.")
        vocab = sorted(vocab, key=vocab.get)
    vocab = [str(word) for word in vocab]
    if len(vocab) != counts.shape[1]:
        raise ValueError(f"{len(vocab)} words for {counts.shape[1]} columns.")
    line = f"from_matrix: {counts.shape[0]:,} documents, {counts.shape[1]:,} words"
    return _finish(counts, vocab, labels, ids, line, kinds, descriptions)


def read_labelled_lines(
    path: str | os.PathLike,
    *,
    labelled: bool | None = None,
    classes: Sequence[str] | None = None,
    tokenizer: Callable[[str], list[str]] = tokenize,
    encoding: str = "utf-8",
    min_docs: int = 1,
    max_words: int | None = None,
    stop_words: Iterable[str] = (),
) -> Corpus:
    """Reads one document per line, `label<tab>text` or only text.

    The label is what stands before the first tab, without blanks and one pair of
    quotes around it; an empty one is missing. The id is the line number.

    Example:
      `read_labelled_lines("twitter_sentiment.tsv")`

    Args:
      path: plain, .gz or .bz2.
      labelled: whether lines have a label; if None, the first line that is not blank
        decides: it has a tab or not. If so, every line must; if not, tabs are blanks.
      classes: the known labels; any other is an error.
      tokenizer: text -> tokens.
      encoding: of the file.
      min_docs: as `from_tokens`, like the other two.
      max_words: at most so many words.
      stop_words: never words.

    Returns:
      A Corpus with label "label", if lines have one.
    """
    documents, labels, ids = [], [], []
    with files.open_lines(path, encoding) as lines:
        for number, line in enumerate(lines, start=1):
            if labelled is None and line.strip():
                labelled = "\t" in line
            label, tab, text = line.partition("\t") if labelled else ("", "", line)
            if labelled and not tab and line.strip():
                raise ValueError(f"{path}, line {number}: no tab after a label.")
            label = _unquote(label)
            if classes is not None and label not in (*classes, MISSING):
                where = f"{path}, line {number}"
                raise ValueError(
                    f"{where}: label {label[:40]!r}, not in {list(classes)}."
                )
            documents.append(tokenizer(text))
            labels.append(label)
            ids.append(number)
    return from_tokens(
        documents,
        labels=labels if labelled else None,
        ids=ids,
        min_docs=min_docs,
        max_words=max_words,
        stop_words=stop_words,
        source=f"read_labelled_lines {os.path.basename(path)}",
    )


def _unquote(label: str) -> str:
    label = label.strip()
    quoted = len(label) >= 2 and label[0] == label[-1] and label[0] in "\"'"
    return label[1:-1].strip() if quoted else label


def read_folder(
    folder: str | os.PathLike,
    *,
    tokenizer: Callable[[str], list[str]] = tokenize,
    encoding: str = "utf-8",
    min_docs: int = 1,
    max_words: int | None = None,
    stop_words: Iterable[str] = (),
) -> Corpus:
    """Reads a folder with one folder per class and one file per document.

    Names that begin with a dot are passed over, and so are, counted and reported, files
    beside the class folders. The id is `class/file`.

    Example:
      `read_folder("20news-bydate-train", encoding="latin-1")`

    Args:
      folder: holds the class folders.
      tokenizer: text -> tokens.
      encoding: of the files.
      min_docs: as `from_tokens`, like the other two.
      max_words: at most so many words.
      stop_words: never words.
    """
    if not os.path.isdir(folder):
        raise ValueError(f"{folder}: expected a folder with a folder per class.")
    documents, labels, ids, beside = [], [], [], 0
    listed = lambda path: sorted(n for n in os.listdir(path) if not n.startswith("."))
    for name in listed(folder):
        inner = os.path.join(folder, name)
        if not os.path.isdir(inner):
            beside += 1
            continue
        for entry in listed(inner):
            path = os.path.join(inner, entry)
            if os.path.isdir(path):
                raise ValueError(f"{path}: a folder inside a class folder.")
            documents.append([])
            if os.path.getsize(path):
                with files.open_lines(path, encoding) as lines:
                    documents[-1] = tokenizer("\n".join(lines))
            labels.append(name)
            ids.append(f"{name}/{entry}")
    if not documents:
        raise ValueError(f"{folder}: no class folder with a file.")
    source = f"read_folder {os.path.basename(os.path.normpath(folder))}"
    if beside:
        source += f" (passed over {beside} files beside the class folders)"
    return from_tokens(
        documents,
        labels=labels,
        ids=ids,
        min_docs=min_docs,
        max_words=max_words,
        stop_words=stop_words,
        source=source,
    )
