"""Run by parallel_test in a process that has 8 CPU devices; prints what it compares.

61 documents in batches of 20: neither divides by 8.
"""

import json
import sys

import jax
import numpy as np

from dwl_jax import Config, Hyper, fit, parallel, runner, train
from dwl_jax.documents import from_counts

CFG = Config(
    num_topics=3,
    dim=4,
    batch_size=20,
    num_iters=4,
    transport_iters=4,
    kernel="plain",
)
HYPER = Hyper(label_weight=0.5)


def gap(a, b):
    """Largest difference relative to the largest entry."""
    return float(np.abs(np.asarray(a) - np.asarray(b)).max() / np.abs(a).max())


def problem():
    rng = np.random.default_rng(0)
    Y = rng.poisson(0.3, (61, 17)) + np.eye(61, 17)[np.arange(61) % 17]
    args = {"cfg": CFG, "num_words": 17, "labels": np.arange(61) % 2}
    return from_counts(Y, dtype=np.float64), args


def compare(docs, args):
    """One device against eight."""
    key, mesh = jax.random.key(0), parallel.make_mesh()
    one, info_1 = fit(key, docs, HYPER, num_epochs=3, **args)
    many, info_8 = parallel.fit(key, docs, HYPER, mesh=mesh, num_epochs=3, **args)
    leaves = zip(jax.tree.leaves(one), jax.tree.leaves(many), strict=True)
    gaps = {
        n: gap(getattr(one.params, n), getattr(many.params, n))
        for n in one.params._fields
    }
    gaps |= {"loss": gap(info_1.loss, info_8.loss)}
    return {"gap": gaps, "shapes": all(a.shape == b.shape for a, b in leaves)}


def flops(task):
    """What one device computes in an epoch."""
    lowered = runner._epoch.lower(
        task.key,
        task.state,
        task.docs,
        task.hyper,
        cfg=CFG,
        labels=task.labels,
        num_labels=2,
        num_docs=61,
    )
    return lowered.compile().cost_analysis()["flops"]


def shares(docs, args):
    """Documents and work are cut, topics and embeddings copied."""
    task, mesh = (
        train.prepare(jax.random.key(0), docs, HYPER, **args),
        parallel.make_mesh(),
    )
    placed = parallel.place(task, mesh)
    with jax.set_mesh(mesh):
        cut = flops(placed)
    return {
        "rows": placed.state.params.A.addressable_shards[0].data.shape[0],
        "copies": placed.state.params.theta.is_fully_replicated,
        "flops": cut / flops(task),
    }


def resume(docs, args, folder):
    """Stopped on 8 devices; resumed on 8, and on 4."""
    task = train.prepare(jax.random.key(0), docs, HYPER, **args)
    eight, four = parallel.make_mesh(), parallel.make_mesh(jax.devices()[:4])
    run = lambda mesh, **kw: runner.run(task, cfg=CFG, num_epochs=3, mesh=mesh, **kw)
    whole, ended = run(eight).state, []
    for mesh, name in ((eight, "8"), (four, "4")):
        asked = iter([False, True])
        stopped = run(eight, folder=folder + name, stop=lambda a=asked: next(a))
        assert stopped.stopped
        ended.append(run(mesh, folder=folder + name, resume=True).state)
    same = zip(jax.tree.leaves(whole), jax.tree.leaves(ended[0]), strict=True)
    return {
        "resume_same_bits": all(np.array_equal(a, b) for a, b in same),
        "resume_on_4": max(map(gap, whole.params, ended[1].params)),
    }


def main(folder):
    jax.config.update("jax_enable_x64", True)
    assert jax.device_count() == 8
    docs, args = problem()
    out = compare(docs, args) | shares(docs, args) | resume(docs, args, folder)
    print(json.dumps(out))  # noqa: T201


if __name__ == "__main__":
    main(*sys.argv[1:])
