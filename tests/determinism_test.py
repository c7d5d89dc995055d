"""Same key, same settings, same machine: the same bits, also when compiled anew."""

import jax
import numpy as np
import pytest
from jax.experimental.compilation_cache import compilation_cache

from dwl_jax import Config, Hyper, data, fit, infer, model

CFG = Config(num_topics=4, dim=5, batch_size=16, num_iters=4, kernel="plain")


def run(mode, seed=0):
    corpus = data.synthetic_admissions(60, 0)
    kwargs = {}
    if mode == "finetune":
        kwargs["vectors"] = data.train_word2vec(corpus, dim=5, seed=1).X
    if mode == "supervised":
        kwargs["labels"] = corpus.label_codes("admission_type")[0]
    hyper = Hyper(label_weight=1.0 if mode == "supervised" else 0.0)
    docs = corpus.documents()
    state, info = fit(
        jax.random.key(seed),
        docs,
        hyper,
        cfg=CFG,
        num_epochs=3,
        num_words=corpus.num_words,
        **kwargs,
    )
    inferred = infer(docs, model(state, CFG), hyper, cfg=CFG, num_steps=5)
    return jax.tree.map(np.asarray, (state, info, inferred))


def compiled_anew():
    """Nothing that was compiled is found again, here or in the tests' folder."""
    jax.clear_caches()
    compilation_cache.reset_cache()
    jax.config.update("jax_compilation_cache_dir", None)


@pytest.fixture(autouse=True)
def the_folder_is_used_again():
    folder = jax.config.jax_compilation_cache_dir
    yield
    if jax.config.jax_compilation_cache_dir != folder:
        compilation_cache.reset_cache()
        jax.config.update("jax_compilation_cache_dir", folder)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["scratch", "finetune", "supervised"])
def test_twice_the_same_bits(mode):
    first = run(mode)
    if mode == "scratch":
        compiled_anew()
    second = run(mode)
    for a, b in zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True):
        np.testing.assert_array_equal(a, b)
    other = run(mode, seed=1)
    assert (other[0].params.A != first[0].params.A).all()
