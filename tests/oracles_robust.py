"""Worst cases in closed form or by brute force, in NumPy and SciPy."""

import numpy as np
import scipy.linalg


def linear_worst_case(w, sigma, price):
    """argmax and max of ``w'd - price * d' sigma d``."""
    shift = np.linalg.solve(sigma, w) / (2 * price)
    return shift, w @ shift / 2


def invariance(weight, sigma, eps):
    """Largest mean ``|W d|^2`` if the mean of ``d' sigma d`` is at most eps.

    All of the budget goes into the direction in which outputs change most per unit of
    cost: the largest eigenvalue of the pencil, and that direction.
    """
    values, vectors = scipy.linalg.eigh(weight.T @ weight, sigma)
    return eps * values[-1], vectors[:, -1]


def grid_maximum(objective, center, radius, num=401):
    """Largest value of a function of two variables on a square around a point."""
    steps = np.linspace(-radius, radius, num)
    points = np.stack(np.meshgrid(center[0] + steps, center[1] + steps), axis=-1)
    return objective(points.reshape(-1, 2)).max()
