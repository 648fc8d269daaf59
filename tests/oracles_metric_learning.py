"""Metric learning written from the formulas, in NumPy and SciPy only."""

import numpy as np
from scipy.linalg import subspace_angles
from scipy.optimize import minimize
from scipy.special import expit, log_softmax


def largest_angle(basis, truth) -> float:
    """Largest principal angle between the spans of two sets of rows, in radians."""
    basis, truth = np.asarray(basis, float), np.asarray(truth, float)
    assert len(basis) == len(truth)
    return float(subspace_angles(basis.T, truth.T).max())


def top_right_singular_vectors(v, count):
    """Rows that span the main directions of the rows of ``v``."""
    return np.linalg.svd(np.asarray(v, float), full_matrices=False)[2][:count]


def within_group_deviations(x, group):
    """Rows minus the mean of their group."""
    x = np.array(x, float)
    for label in np.unique(group):
        x[group == label] -= x[group == label].mean(axis=0)
    return x


def probability_similar(delta, sigma):
    """2 / (1 + exp(d^2))."""
    return 2 * expit(-np.einsum("pi,ij,pj->p", delta, sigma, delta))


def pair_log_likelihood(delta, similar, sigma) -> float:
    """Mean log-likelihood of the judgements."""
    p = probability_similar(delta, sigma)
    return float(np.mean(similar * np.log(p) + (1 - similar) * np.log1p(-p)))


def explore(delta, similar, penalty=0.0):
    """Minimises over a full square factor, which makes any metric reachable."""
    size = delta.shape[1]

    def objective(flat):
        factor = flat.reshape(size, size)
        s = np.square(delta @ factor).sum(axis=1)
        value = similar * (np.logaddexp(0, s) - np.log(2))
        value -= (1 - similar) * np.log(np.tanh(s / 2))
        slope = similar * expit(s) - (1 - similar) / np.sinh(s) + penalty
        gradient = 2 * (delta.T * slope) @ (delta @ factor) / len(delta)
        return (value + penalty * s).mean(), gradient.ravel()

    options = {"maxiter": 5000, "ftol": 1e-15, "gtol": 1e-9}
    start = np.eye(size).ravel() / size
    out = minimize(objective, start, jac=True, method="L-BFGS-B", options=options)
    factor = out.x.reshape(size, size)
    return factor @ factor.T, float(out.fun)


def softmax_objective(x, label, coefficients, intercepts, ridge) -> float:
    """Sum of negative log-likelihoods plus half the ridge."""
    scores = x @ coefficients.T + intercepts
    if len(coefficients) == 1:
        scores = np.concatenate([np.zeros_like(scores), scores], axis=1)
    log_prob = log_softmax(scores, axis=1)[np.arange(len(x)), label]
    return float(-log_prob.sum() + ridge / 2 * np.square(coefficients).sum())


def ridge_logistic(x, label, penalty):
    """Newton's method for a binary label, with a penalty of its own per column."""
    x = np.concatenate([x, np.ones((len(x), 1))], axis=1)
    penalty = np.append(penalty, 0.0)
    w = np.zeros(x.shape[1])
    for _ in range(50):
        p = expit(x @ w)
        gradient = x.T @ (p - label) + penalty * w
        hessian = (x.T * (p * (1 - p))) @ x + np.diag(penalty)
        # To unit diagonal: penalties differ by many orders of magnitude.
        size = 1 / np.sqrt(np.diag(hessian))
        w -= size * np.linalg.solve(hessian * size[:, None] * size, size * gradient)
    return w[:-1], float(w[-1])
