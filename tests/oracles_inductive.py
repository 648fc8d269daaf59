"""New samples beside fitted ones, and rows of the inverse, from their formulas."""

import numpy as np

from tests.oracles import Array, lam_scale, system


def weights(a: Array, b: Array, tau: float, theta: float) -> Array:
    """Similarities of the rows of ``a`` and ``b`` (eq. 2.2)."""
    sq_dist = ((a[:, None] - b[None]) ** 2).sum(-1)
    return np.where(sq_dist <= tau * tau, np.exp(-theta * sq_dist), 0.0)


def fitted_weights(x: Array, tau: float, theta: float) -> Array:
    """Similarities of fitted samples, without the diagonal."""
    W = weights(x, x, tau, theta)
    np.fill_diagonal(W, 0.0)
    return W


def new_rows(
    W: Array, outer: Array, inner: Array, normalization: str | None
) -> tuple[Array, Array, Array]:
    """Diagonal, entries towards fitted and towards new samples of the new rows.

    ``W`` holds the weights of fitted samples, ``outer`` those of new and fitted ones,
    ``inner`` those of new ones, all without diagonals.
    """
    if normalization is None:
        return outer.sum(1) + inner.sum(1), outer, inner
    old = W.sum(1) + 1.0
    new = outer.sum(1) + inner.sum(1) + 1.0
    outer_t = outer / np.sqrt(np.outer(new, old))
    inner_t = inner / np.sqrt(np.outer(new, new))
    total = outer_t.sum(1) + inner_t.sum(1)
    if normalization == "density":
        return total, outer_t, inner_t
    old_t = (W / np.sqrt(np.outer(old, old))).sum(1) + 1.0 / old
    new_t = total + 1.0 / new
    outer_v = outer_t * (1.0 / new_t[:, None] + 1.0 / old_t[None]) / 2.0
    inner_v = inner_t * (1.0 / new_t[:, None] + 1.0 / new_t[None]) / 2.0
    return total / new_t, outer_v, inner_v


def update(
    W: Array, outer: Array, y: Array, f: Array, lam: float, normalization: str | None
) -> Array:
    """One coordinate update of each new sample (section 3.2.3)."""
    none = np.zeros((len(outer), len(outer)))
    a, v, _ = new_rows(W, outer, none, normalization)
    mu = lam * lam_scale(W, normalization)
    return (y + mu * v @ f) / (1.0 + mu * a)[:, None]


def joint(
    W: Array,
    outer: Array,
    inner: Array,
    y: Array,
    f: Array,
    lam: float,
    normalization: str | None,
) -> Array:
    """New samples together, fitted ones fixed."""
    a, v, u = new_rows(W, outer, inner, normalization)
    mu = lam * lam_scale(W, normalization)
    M = np.eye(len(y)) + mu * (np.diag(a) - u)
    return np.linalg.solve(M, y + mu * v @ f)


def inverse(W: Array, lam: float, normalization: str | None) -> Array:
    """Contribution of each sample to each output."""
    return np.linalg.inv(system(W, lam, normalization))


def kth_distance(dist: Array, k: int, tau: float = np.inf) -> Array:
    """Distance of each row's k-th nearest, at most ``tau``; that if there are fewer."""
    if dist.shape[1] < k:
        return np.full(len(dist), tau)
    return np.minimum(np.sort(dist, axis=1)[:, k - 1], tau)


def nearest_weights(
    dist: Array,
    scale: Array,
    other_scale: Array,
    mutual: bool,
    theta: float | None,
    decay: float,
) -> Array:
    """Similarities of rows and columns of which one, or each, is near the other.

    None at an infinite distance is.
    """
    apart = np.isinf(dist)
    dist = np.where(apart, 0.0, dist)
    larger = np.maximum(scale[:, None], other_scale[None])
    limit = np.minimum(scale[:, None], other_scale[None]) if mutual else larger
    if theta is not None:
        weight = np.exp(-theta * dist**2)
    else:
        plain = (larger == 0) | np.isinf(larger)
        safe = np.where(plain, 1.0, larger)
        weight = np.where(plain, 1.0, np.exp(-decay * (dist / safe) ** 2))
    return np.where(~apart & (dist <= limit * (1 + 1e-12)), weight, 0.0)
