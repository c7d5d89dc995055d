"""The batch gradient against bare matrix products and against what else is in use."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from dwl_jax import barycenter, kernel
from experiments.bench_timing import Size, best, compiled

EPSILONS = (0.05, 0.01)


def problem(size: Size, dtype=np.float32) -> dict[str, np.ndarray]:
    """Logits, a mean-scaled distance to the power 0.5, and documents."""
    rng = np.random.default_rng(size.seed)
    X = rng.normal(size=(size.num_words, size.dim))
    D = np.sqrt(((X[:, None] - X[None]) ** 2).sum(-1))
    D = (D / (D.sum() / (D.size - len(D)))) ** 0.5
    y = rng.dirichlet(np.full(size.num_words, 0.1), size=size.batch_size)
    A = rng.normal(size=(size.batch_size, size.num_topics))
    R = rng.normal(size=(size.num_topics, size.num_words))
    arrays = {"A": A, "R": R, "D": D, "y": y}
    return {name: np.asarray(x, dtype) for name, x in arrays.items()}


def loss(A, R, D, y, epsilon, *, size: Size, form: str):
    """Squared loss of the batch through the barycenters of one kernel form."""
    k = kernel.build(D, epsilon, form=form)
    log_B, lam = jax.nn.log_softmax(R, axis=-1), jax.nn.softmax(A, axis=-1)
    log_y = barycenter(log_B, lam, k, num_iters=size.num_iters).log_y
    return jnp.sum((jnp.exp(log_y) - y) ** 2)


def products(V, C, *, num_iters: int, per_iter: int, words_first: bool):
    """The matrix products of the work alone: `per_iter` for each iteration."""

    def body(V, _):
        for _ in range(per_iter):
            V = C @ V if words_first else V @ C
        return V, None

    return jax.lax.scan(body, V, length=num_iters)[0]


def autodiff_loss(A, R, D, y, epsilon, *, size: Size):
    """The same loop as anyone would write it, for JAX to differentiate."""
    C, B, lam = jnp.exp(-D / epsilon), jax.nn.softmax(R, -1), jax.nn.softmax(A, -1)

    def body(scal, _):
        phi = (B[None] / (scal @ C)) @ C
        log_y = jnp.sum(lam[..., None] * jnp.log(phi), axis=1)
        return jnp.exp(log_y)[:, None, :] / phi, log_y

    start = jnp.ones((*lam.shape, len(D)), A.dtype)
    log_y = jax.lax.scan(body, start, length=size.num_iters)[1][-1]
    return jnp.sum((jnp.exp(log_y) - y) ** 2)


def ott_forward(A, R, D, y, epsilon, *, size: Size, lse_mode: bool):
    """OTT's FixedBarycenter of every document, vmapped; exactly L iterations."""
    from ott.geometry import geometry
    from ott.problems.linear import barycenter_problem
    from ott.solvers.linear import discrete_barycenter

    geom = geometry.Geometry(cost_matrix=D, epsilon=epsilon)
    solver = discrete_barycenter.FixedBarycenter(
        threshold=-1.0,
        min_iterations=size.num_iters,
        max_iterations=size.num_iters,
        inner_iterations=size.num_iters,
        lse_mode=lse_mode,
    )
    B = jax.nn.softmax(R, axis=-1)

    def one(lam):
        made = barycenter_problem.FixedBarycenterProblem(geom, B, lam)
        return solver(made).histogram

    return jax.vmap(one)(jax.nn.softmax(A, axis=-1))


def pot_forward(data, epsilon, size: Size, num_docs: int = 2):
    """POT's barycenters (the method that is right), document by document."""
    import ot

    data = {k: np.asarray(v, np.float64) for k, v in data.items()}
    B, lam = (
        np.exp(x) / np.exp(x).sum(-1, keepdims=True) for x in (data["R"], data["A"])
    )
    for weights in lam[:num_docs]:
        ot.bregman.barycenter(
            B.T.copy(), data["D"], epsilon, weights=weights, method="sinkhorn_log",
            numItermax=size.num_iters, stopThr=0.0, warn=False,
        )  # fmt: skip


def torch_gradient(data, epsilon, size: Size):
    """A hand-batched PyTorch loop with autograd; None where torch is not installed."""
    try:
        import torch
    except ImportError:
        return None
    A, R, D, y = (torch.tensor(data[k]) for k in ("A", "R", "D", "y"))
    A.requires_grad_(), R.requires_grad_()
    C = torch.exp(-D / epsilon)

    def run():
        A.grad = R.grad = None
        B, lam = torch.softmax(R, -1), torch.softmax(A, -1)
        scal = torch.ones(*lam.shape, len(D), dtype=D.dtype)
        for _ in range(size.num_iters):
            phi = (B / (scal @ C)) @ C
            new = torch.exp((lam[..., None] * torch.log(phi)).sum(1))
            scal = new[:, None] / phi
        ((new - y) ** 2).sum().backward()
        return A.grad.numpy()

    return run


def bare_products(size: Size, dtype, per_iter: int) -> dict:
    """Both layouts; the better one is the floor."""
    rows = size.batch_size * size.num_topics
    C = jnp.full((size.num_words,) * 2, 1.0 / size.num_words, dtype)
    runs = {}
    for first in (False, True):
        V = jnp.ones((size.num_words, rows) if first else (rows, size.num_words), dtype)
        run = functools.partial(
            products, num_iters=size.num_iters, per_iter=per_iter, words_first=first
        )
        layout = "C [N, sK]" if first else "[sK, N] C"
        runs[f"bare products, {layout}"] = compiled(run, V, C)[0]
    return runs


def measure(size: Size, log) -> dict:
    """All rows of one precision and epsilon; log(message) tells how far it is."""
    out = {}
    for dtype, x64 in ((np.float32, False), (np.float64, True)):
        for epsilon in EPSILONS:
            name = f"{np.dtype(dtype).name}, epsilon {epsilon}"
            log(f"batch gradient: {name}")
            with jax.enable_x64(x64):
                out[name] = _measure_one(size, dtype, epsilon)
    return out


def _measure_one(size: Size, dtype, epsilon) -> dict:
    data = problem(size, dtype)
    args = (*data.values(), np.asarray(epsilon, dtype))
    runs, compiling, work = bare_products(size, dtype, 4), {}, {}
    forms = ["auto", "log", "plain" if epsilon > 0.02 else "scaled"]
    for form in forms:
        fn = functools.partial(loss, size=size, form=form)
        grad = jax.value_and_grad(fn, argnums=(0, 1))
        runs[f"{form}, gradient"], compiling[form], work[form] = compiled(grad, *args)
        if form != "log":
            runs[f"{form}, forward"] = compiled(fn, *args)[0]
    through_cost = jax.value_and_grad(
        functools.partial(loss, size=size, form="auto"), argnums=(0, 1, 2)
    )
    runs["auto, gradient, cost too"] = compiled(through_cost, *args)[0]
    if epsilon > 0.02:
        plain = jax.value_and_grad(functools.partial(autodiff_loss, size=size), (0, 1))
        runs["JAX autodiff, gradient"] = compiled(plain, *args)[0]
        torch_run = torch_gradient(data, epsilon, size)
        if torch_run is not None:
            runs["PyTorch, gradient"] = torch_run
    with jax.numpy_rank_promotion("allow"):
        for lse in (False, True):
            fn = functools.partial(ott_forward, size=size, lse_mode=lse)
            mode = "lse" if lse else "kernel"
            runs[f"OTT {mode} mode, forward"] = compiled(fn, *args)[0]
    found = best(runs, rounds=size.rounds, seconds=size.seconds)
    if dtype == np.float64:
        some = {"pot": lambda: pot_forward(data, epsilon, size)}
        each = best(some, rounds=2, seconds=size.seconds)["pot"] / 2
        found["POT, forward"] = each * size.batch_size
    kept = 2 * size.num_iters * size.num_topics + size.num_iters
    must = kept * size.batch_size * size.num_words * np.dtype(dtype).itemsize
    return {
        "seconds": found,
        "compile seconds": compiling,
        "memory over what must be kept": {k: v / must for k, v in work.items()},
    }
