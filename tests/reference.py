"""Algorithms 1 and 2 of the paper in plain numpy, float64: the tests' second opinion.

Loops are written as printed, over documents and topics, with the paper's slips put
right: C = exp(-D / epsilon), and the backward loops run from L down to 1.
"""

import collections
from typing import NamedTuple

import numpy as np
from scipy.special import logsumexp, softmax


class Forward(NamedTuple):
    """Algorithm 2, forward: everything its backward loops look at."""

    y: np.ndarray  # [N]
    beta: list  # beta^0 ... beta^L, each [K, N]
    phi: list  # phi^1 ... phi^L, each [K, N]; phi[0] is unused


def forward(B, lam, cost, epsilon, num_iters):
    """Forward loop of Algorithm 2 for one document: B [K, N], lam [K]."""
    C = np.exp(-np.asarray(cost, np.float64) / epsilon)
    beta, phi = [np.ones_like(B)], [None]
    for _ in range(num_iters):
        pairs = zip(B, beta[-1], strict=True)
        phi.append(np.stack([C.T @ (b / (C @ s)) for b, s in pairs]))
        y = np.prod(phi[-1] ** lam[:, None], axis=0)
        beta.append(y / phi[-1])
    return Forward(y, beta, phi)


def barycenter(B, lam, cost, epsilon, num_iters):
    """y_S(B, lam; cost), [N]."""
    return forward(B, lam, cost, epsilon, num_iters).y


def weight_gradient(run, B, lam, cost, epsilon, grad_y):
    """Backward loop for weights of Algorithm 2, l = L ... 1: gradient [K]."""
    C = np.exp(-cost / epsilon)
    K, N = B.shape
    w, r, g = np.zeros(K), np.zeros((K, N)), grad_y * run.y
    for l in range(len(run.phi) - 1, 0, -1):
        new = np.zeros((K, N))
        for k in range(K):
            w[k] += np.log(run.phi[l][k]) @ g
            inner = C @ ((lam[k] * g - r[k]) / run.phi[l][k])
            scaled = inner * B[k] / (C @ run.beta[l - 1][k]) ** 2
            new[k] = -(C.T @ scaled) * run.beta[l - 1][k]
        r = new
        g = r.sum(axis=0)
    return w


def basis_gradient(run, B, lam, cost, epsilon, grad_y):
    """Backward loop for the basis of Algorithm 2, l = L ... 1: gradient [K, N]."""
    C = np.exp(-cost / epsilon)
    M, z = np.zeros_like(B), np.zeros_like(B)
    running = grad_y  # the paper reuses the symbol of the loss gradient for it
    for l in range(len(run.phi) - 1, 0, -1):
        for k in range(len(B)):
            psi = C @ ((lam[k] * running - z[k]) * run.beta[l][k])
            u = C @ run.beta[l - 1][k]
            M[k] += psi / u
            if l > 1:  # there is no phi^0, and nothing is left to pull back
                z[k] = -(C.T @ (B[k] * psi / u**2)) / run.phi[l - 1][k]
        running = z.sum(axis=0)
    return M


def distance_matrix(X):
    """||x_n - x_n'||, [N, N]."""
    return np.array([[np.linalg.norm(a - b) for b in X] for a in X])


def plan(b, y, cost, epsilon, num_iters):
    """Sinkhorn plan [N, N] between topic and document, its topic side exact."""
    log_C = -np.asarray(cost, np.float64) / epsilon
    with np.errstate(divide="ignore"):
        log_b, log_y = np.log(b), np.log(y)
    g = log_y
    for _ in range(num_iters):
        f = log_b - logsumexp(log_C + g[None, :], axis=1)
        g = log_y - logsumexp(log_C.T + f[None, :], axis=1)
    f = log_b - logsumexp(log_C + g[None, :], axis=1)
    return np.exp(f[:, None] + log_C + g[None, :])


def laplacian(T):
    """L of the symmetrised aggregate."""
    S = (T + T.T) / 2
    return np.diag(S.sum(axis=1)) - S


def softmax_pullback(p, grad):
    """Gradient with respect to logits from the one with respect to softmax(logits)."""
    return p * (grad - np.sum(p * grad, axis=-1, keepdims=True))


def algorithm1(A, R, X, Y, orders, *, tau, epsilon, beta, rho, batch_size, num_iters):
    """Algorithm 1 with the squared loss, one-hot words, one gradient step per batch.

    Args:
      A: [M, K]; R: [K, N]; X: [N, dim]: where it starts.
      Y: documents, [M, N].
      orders: for each epoch, the documents in the order they are visited.
      tau: distillation power.
      epsilon: of barycenter and plans.
      beta: of the penalty; its gradient is 0 at theta_c, where the step is taken.
      rho: rate of all three steps.
      batch_size: s.
      num_iters: L, for barycenter and plans.

    Returns:
      A, R, X and the mean loss of each batch.
    """
    A, R, X = (np.array(x, np.float64) for x in (A, R, X))
    losses = []
    for order in orders:
        for start in range(0, len(order), batch_size):
            rows = order[start : start + batch_size]
            D = distance_matrix(X)
            B = softmax(R, axis=1)
            grad_B, grad_lam, loss = np.zeros_like(B), {}, []
            for m in rows:
                lam = softmax(A[m])
                args = (B, lam, D**tau, epsilon)
                run = forward(*args, num_iters)
                grad_y = 2 * (run.y - Y[m])
                grad_B += basis_gradient(run, *args, grad_y)
                grad_lam[m] = weight_gradient(run, *args, grad_y)
                loss.append(np.sum((run.y - Y[m]) ** 2))
            R = R - rho * softmax_pullback(B, grad_B)
            for m in rows:
                A[m] = A[m] - rho * softmax_pullback(softmax(A[m]), grad_lam[m])
            B = softmax(R, axis=1)
            closest = {m: B[np.argmax(softmax(A[m]))] for m in rows}
            T = sum(plan(closest[m], Y[m], D, epsilon, num_iters) for m in rows)
            X_c = X
            X = X_c - rho * (2 * laplacian(T) @ X_c + 2 * beta * (X_c - X_c))
            losses.append(np.mean(loss))
    return A, R, X, np.array(losses)


def finite_difference(fn, x, direction, step=1e-6):
    """Directional derivative of a scalar function, by central differences."""
    return (fn(x + step * direction) - fn(x - step * direction)) / (2 * step)


def knn_predict(distances, labels, num_neighbors):
    """Majority label of the nearest neighbours, [Q]; a tie goes to the nearer label."""
    out = []
    for row in np.asarray(distances):
        near = np.asarray(labels)[np.argsort(row, kind="stable")[:num_neighbors]]
        votes = collections.Counter(near.tolist())
        most = max(votes.values())
        out.append(next(label for label in near.tolist() if votes[label] == most))
    return np.array(out)


def precision_recall_f1(ranked, truth, top_n):
    """The paper's P, R and F1 of the first `top_n`, averaged over documents."""
    scores = []
    for row, true in zip(ranked, truth, strict=True):
        hits = len(set(row[:top_n].tolist()) & set(true))
        p, r = hits / top_n, hits / len(true)
        scores.append((p, r, 2 * p * r / (p + r) if hits else 0.0))
    return np.mean(scores, axis=0)
