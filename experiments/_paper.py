"""Published settings and numbers: the only place that knows them.

Petersen, Mukherjee, Sun and Yurochkin (2021), appendix A, tables 1 to 3. Their radii
are squared distances; ours are distances.
"""

from pyg_glif.typing import Normalization

#: Grid of squared radii, and of strengths, that the paper searched.
SQ_TAUS = tuple(10 ** (0.02 * i) for i in range(-50, 101))
LAMS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)

#: Lipschitz constants of the IF-constraints.
LIPSCHITZ = (1.5, 1.7, 1.8, 1.9, 2.0, 2.25, 2.5, 2.75, 3.0, 3.5, 4.0)

#: GLIF and its relatives, by the Laplacian they use. The last one is ours.
METHODS: dict[str, Normalization] = {
    "GLIF": None,
    "GLIF-NRW": "nrw",
    "GLIF-density": "density",
}

#: Balanced accuracy and consistency, mean and standard deviation over 10 seeds.
TABLES: dict[str, dict[str, tuple[float, float, float, float]]] = {
    "bios": {
        "Baseline": (0.846, 0.003, 0.942, 0.002),
        "GLIF": (0.830, 0.004, 0.986, 0.002),
        "GLIF-NRW": (0.834, 0.003, 0.988, 0.002),
        "SenSeI": (0.843, 0.003, 0.977, 0.001),
    },
    "toxicity": {
        "Baseline": (0.809, 0.004, 0.614, 0.013),
        "GLIF": (0.803, 0.003, 0.835, 0.012),
        "GLIF-NRW": (0.803, 0.003, 0.844, 0.013),
        "SenSeI": (0.791, 0.005, 0.773, 0.043),
    },
}

#: AUC, individual unfairness and GDIF by data set and network: GUIDE's repository.
GRAPHS: dict[tuple[str, str], dict[str, tuple[float, float, float]]] = {
    ("credit", "gcn"): {
        "as it is": (0.6984, 40829.0, 1.375),
        "InFoRM, model": (0.6813, 2408.0, 1.490),
        "PFR": (0.6724, 12495.0, 1.304),
        "NIFTY": (0.6927, 31671.0, 1.247),
        "FairGNN": (0.6890, 43561.0, 1.333),
        "GUIDE": (0.6776, 1886.0, 1.003),
    },
}

#: The same, then ranking agreement, of PyGDebias 1.1.1; its GUIDE computes AUC from
#: decisions, not from scores.
PYGDEBIAS: dict[tuple[str, str], dict[str, tuple[float, float, float, float]]] = {
    ("credit", "gcn"): {
        "as it is": (0.666, 190e3, 1.63, 0.611),
        "InFoRM, model": (0.645, 23.6e3, 2.42, 0.621),
        "REDRESS": (0.570, 8.8e14, 3.05, 0.913),
        "GUIDE": (0.632, 337.0, 1.003, 0.665),
    },
    ("bail", "gcn"): {
        "as it is": (0.962, 1.32e9, 1.12, 0.965),
        "InFoRM, model": (0.651, 11.6e3, 1.11, 0.971),
        "REDRESS": (0.687, 4.0e15, 1.82, 0.980),
        "GUIDE": (0.797, 9.63e3, 1.006, 0.972),
    },
}

#: Seconds on a 3.6 GHz Core i9, one thread, by number of points.
RUNTIMES: dict[str, dict[int, float]] = {
    "IF-constraints": {757: 422.0},
    "closed form": {757: 0.02, 788: 0.02, 7870: 8.8, 2383: 0.33, 23620: 228.0},
    "coordinate descent": {
        757: 0.08,
        788: 0.18,
        7870: 30.0,
        78686: 4569.0,
        2383: 0.94,
        23620: 111.0,
        235842: 12200.0,
    },
}
