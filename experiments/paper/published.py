"""The paper's own numbers, and why ours do not stand beside them on equal terms."""

from typing import NamedTuple

ACCURACY = ("mortality/1nn", "mortality/5nn", "type/1nn", "type/5nn")


class Row(NamedTuple):
    """A row of Table 1: what the paper calls it, what we call it, what it printed."""

    word: str  # word feature
    document: str  # document feature
    metric: str
    row: str  # of our results
    paper: tuple[float, ...] = ()  # ACCURACY
    half: tuple[float, ...] = ()  # of the 90 % intervals


TABLE1: dict[str, list[Row]] = {
    "Euclidean distance of document features": [
        Row("—", "TF-IDF", "Euclidean", "TF-IDF",
            (69.98, 75.32, 82.27, 88.28), (0.05, 0.04, 0.03, 0.02)),
        Row("—", "LDA", "Euclidean", "LDA",
            (66.03, 69.05, 81.41, 86.57), (0.06, 0.06, 0.04, 0.04)),
        Row("Word2Vec", "Doc2Vec", "Euclidean", "Doc2Vec",
            (57.98, 59.80, 70.57, 79.94), (0.08, 0.08, 0.08, 0.07)),
        Row("Word2Vec", "average", "Euclidean", "Word2Vec input, pooled",
            (70.42, 75.21, 84.88, 89.16), (0.05, 0.04, 0.07, 0.06)),
        Row("GloVe", "average", "Euclidean", "GloVe, pooled",
            (66.94, 73.21, 81.91, 88.21), (0.06, 0.04, 0.05, 0.05)),
        Row("DWL scratch", "average", "Euclidean", "DWL scratch, pooled",
            (71.01, 74.74, 84.54, 89.49), (0.12, 0.11, 0.13, 0.12)),
        Row("DWL fine-tuned", "average", "Euclidean", "DWL fine-tuned, pooled",
            (71.52, 75.44, 85.54, 89.28), (0.07, 0.07, 0.09, 0.09)),
    ],
    "Euclidean distance of topic weights": [
        Row("Word2Vec", "topic weights", "Euclidean", "Word2Vec input, topic weights",
            (70.31, 74.89, 83.63, 89.25), (0.04, 0.04, 0.05, 0.04)),
        Row("DWL scratch", "topic weights", "Euclidean", "DWL scratch, topic weights",
            (70.45, 74.88, 83.82, 88.80), (0.08, 0.07, 0.12, 0.12)),
        Row("DWL fine-tuned", "topic weights", "Euclidean",
            "DWL fine-tuned, topic weights",
            (70.88, 75.67, 84.26, 89.13), (0.07, 0.07, 0.09, 0.08)),
    ],
    "Wasserstein distance of word distributions": [
        Row("Word2Vec", "words", "Wasserstein", "Word2Vec input, Wasserstein",
            (70.61, 75.92, 84.08, 89.06), (0.04, 0.04, 0.05, 0.05)),
        Row("GloVe", "words", "Wasserstein", "GloVe, Wasserstein",
            (70.64, 75.97, 83.92, 89.17), (0.06, 0.05, 0.08, 0.07)),
        Row("DWL scratch", "words", "Wasserstein", "DWL scratch, Wasserstein",
            (71.01, 75.88, 84.23, 89.33), (0.10, 0.09, 0.12, 0.11)),
        Row("DWL fine-tuned", "words", "Wasserstein", "DWL fine-tuned, Wasserstein",
            (70.65, 76.00, 84.35, 89.61), (0.07, 0.06, 0.08, 0.07)),
    ],
    "Controls, not in the paper": [
        Row("—", "always the commonest class", "—", "majority class"),
        Row("random", "average", "Euclidean", "random, pooled"),
        Row("one-hot", "average", "Euclidean", "one-hot, pooled"),
        Row("random", "words", "Wasserstein", "random, Wasserstein"),
        Row("one-hot", "words", "Wasserstein", "one-hot, Wasserstein"),
        Row("—", "topic weights without transport", "Euclidean",
            "without transport, topic weights"),
        Row("random, frozen", "topic weights", "Euclidean",
            "frozen embeddings, topic weights"),
    ],
}  # fmt: skip

RECOMMENDED = tuple(f"rec/{s}@{n}" for n in (1, 3, 5) for s in ("p", "r", "f1"))

# Name, how procedures are ranked, our row, the paper's RECOMMENDED.
TABLE2: dict[str, list[tuple[str, str, str, tuple[float, ...]]]] = {
    "By distance between embeddings": [
        ("Word2Vec", "input vectors", "Word2Vec input, distance",
         (39.95, 13.27, 18.25, 31.70, 33.46, 29.30, 28.89, 46.98, 32.59)),
        ("Word2Vec", "input + output vectors", "Word2Vec sum, distance", ()),
        ("GloVe", "", "GloVe, distance",
         (32.66, 13.01, 17.22, 29.45, 30.99, 27.41, 27.93, 44.79, 31.47)),
        ("DWL scratch", "", "DWL scratch, distance",
         (37.89, 12.42, 17.16, 30.14, 29.78, 27.14, 27.39, 43.81, 30.81)),
        ("DWL fine-tuned", "from Word2Vec input", "DWL fine-tuned, distance",
         (40.00, 13.76, 18.71, 31.88, 33.71, 29.58, 30.59, 48.56, 34.28)),
    ],
    "By reconstruction, not in the paper": [
        ("DWL scratch", "barycenter of the topics", "DWL scratch, reconstruction", ()),
        ("DWL fine-tuned", "barycenter of the topics",
         "DWL fine-tuned, reconstruction", ()),
    ],
    "Controls, not in the paper": [
        ("random embeddings", "distance", "random, distance", ()),
        ("most frequent procedures", "", "most frequent", ()),
        ("naive Bayes", "procedure given diseases", "naive Bayes", ()),
        ("without transport", "geometric mean of the topics",
         "without transport, reconstruction", ()),
        ("frozen embeddings", "barycenter of the topics",
         "frozen embeddings, reconstruction", ()),
        ("Word2Vec, frozen", "barycenter of the topics",
         "Word2Vec input, reconstruction", ()),
    ],
}  # fmt: skip

TWITTER = (28.92, 0.14)  # test error of DWL, and half of its interval

_DATA = {
    "synthetic": "ours are drawn from profiles fitted on a US national survey",
    "nhds": "ours are from a US national survey of short-stay hospitals",
    "mimic3": "the paper does not say which of MIMIC-III's admissions it took",
    "mimic4": "ours are of other years, from the same hospital",
}


def reason(corpus: str) -> str:
    """Why the paper's numbers are shown but not compared."""
    ours = _DATA.get(corpus, "ours are of another corpus")
    return (
        "The paper's numbers are for 11,086 admissions to the intensive care units of "
        f"one hospital (MIMIC-III); {ours}. Its split and the balance of its classes "
        "are not published. Mortality here is told on equal numbers of survivors and "
        "deaths. Compare rows within ours and within the paper's, not across."
    )
