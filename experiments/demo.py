"""`make demo`: trains on the embedded admissions, then shows topics and neighbours.

python -m experiments.demo [--num_docs=11086] [--epochs=20]
"""

import jax
import jax.numpy as jnp
import numpy as np
import tqdm
from absl import app, flags, logging

import dwl_jax
from dwl_jax import data, metrics, presets, runner
from dwl_jax import train as train_lib

_NUM_DOCS = flags.DEFINE_integer("num_docs", 11_086, "Admissions.", lower_bound=8)
_EPOCHS = flags.DEFINE_integer("epochs", 20, "Passes over them.", lower_bound=1)
_SEED = flags.DEFINE_integer("seed", 0, "Of admissions, split and training.")
_SHOWN = ("d_5849", "d_41401", "d_V3000")  # kidney failure, atherosclerosis, liveborn


def learn(corpus: data.Corpus, recipe: presets.Preset, seed: int):
    """Trains with a progress bar; gives the final State."""
    task = train_lib.prepare(
        jax.random.key(seed),
        corpus.documents(),
        recipe.hyper,
        cfg=recipe.cfg,
        num_words=corpus.num_words,
    )
    with tqdm.tqdm(total=recipe.num_epochs, unit="epoch") as bar:

        def watch(epoch, info):
            bar.update(epoch + 1 - bar.n)
            bar.set_postfix(loss=f"{info.loss.mean():.3f}")

        epochs = recipe.num_epochs
        return runner.run(task, cfg=recipe.cfg, num_epochs=epochs, watch=watch).state


def show_topics(corpus: data.Corpus, log_y, share) -> None:
    print("\nTopics (what an admission of this topic alone holds)")
    for k, row in enumerate(metrics.top_words(log_y, 4)):
        print(f"  {k + 1}: {share[k]:.0%} of all weight")
        for n in row:
            p = float(np.exp(log_y[k, n]))
            print(f"     {p:5.1%}  {corpus.vocab[n]:9} {corpus.descriptions[n]}")


def show_neighbours(corpus: data.Corpus, X) -> None:
    print("\nNearest codes")
    D = np.asarray(metrics.euclidean(X, X))
    for word in _SHOWN:
        n = corpus.vocab.index(word)
        print(f"  {word} {corpus.descriptions[n]}")
        for other in np.argsort(D[n], kind="stable")[1:5]:
            print(f"     {corpus.vocab[other]:9} {corpus.descriptions[other]}")


def show_recommendation(corpus: data.Corpus, model, recipe) -> None:
    """F1 by reconstruction on held-out admissions, beside the most frequent ones."""
    is_disease = corpus.is_kind("disease")
    procedures = np.flatnonzero(corpus.is_kind("procedure"))
    present = corpus.counts.toarray() > 0
    seen = dwl_jax.infer(
        present * is_disease[None, :],
        model,
        recipe.hyper,
        cfg=recipe.cfg,
        num_steps=50,
        observed=jnp.asarray(is_disease),
    )
    order = lambda score: procedures[np.argsort(-score, axis=1, kind="stable")]
    by_model = order(np.asarray(seen.log_y)[:, procedures])
    frequency = present[:, procedures].sum(axis=0)[None, :]
    by_frequency = np.repeat(order(frequency), len(present), axis=0)
    truth = [set(procedures[row[procedures]].tolist()) for row in present]
    print(
        "\nProcedures recommended from the diseases of unseen admissions, F1 at 1/3/5"
    )
    for name, ranked in (("model", by_model), ("most frequent", by_frequency)):
        f1 = [metrics.precision_recall_f1(ranked, truth, n).f1 for n in (1, 3, 5)]
        print(f"  {name:14}" + " ".join(f"{x:6.1%}" for x in f1))


def main(argv):
    del argv
    logging.set_verbosity(logging.WARNING)
    corpus = data.synthetic_admissions(_NUM_DOCS.value, seed=_SEED.value)
    train, _, test = data.split(corpus, seed=_SEED.value)
    recipe = presets.default(num_epochs=_EPOCHS.value)
    print(f"Synthetic admissions: {corpus.summary()}")
    print(f"Learning from {train.num_docs:,} of them")
    state = learn(train, recipe, _SEED.value)
    model = train_lib.model(state, recipe.cfg)
    log_y = np.asarray(dwl_jax.topic_documents(model, recipe.hyper, cfg=recipe.cfg))
    show_topics(train, log_y, np.asarray(jax.nn.softmax(state.params.A, -1)).mean(0))
    show_neighbours(train, model.X)
    show_recommendation(test, model, recipe)


if __name__ == "__main__":
    app.run(main)
