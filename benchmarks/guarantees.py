"""Do guarantees hold, how tight are they, and what do they cost?

Run ``python benchmarks/guarantees.py`` (about ten minutes on two cores, 4 GiB), or name
parts: ``python benchmarks/guarantees.py newcomers sensitivity errors annotators
forgetting cost``. ``cost`` is measured at 78,686 x 768 with 28 outputs, average degree
about 40; everything else by simulation. The tables of ``docs/guarantees.md`` come from
the results: ``docs/results/guarantees.md``.
"""

import argparse
import math
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import RESULTS, interleaved, share, table, write
from data import embedding_like
from torch import Tensor

from pyg_glif import GLIFPostProcessor
from pyg_glif.graph import RadiusIndex
from pyg_glif.guarantees import certify, sensitivity
from pyg_glif.methods import Noise, smooth_worst_case, smoothing_std
from pyg_glif.solvers import Cholesky

FITTED, NEW, COLUMNS, DEGREE, LAM = 78_686, 10_000, 28, 40, 10.0
PAGE = Path(__file__).parents[1] / "docs" / "results" / "guarantees.md"
Row = dict[str, Any]


def row(
    name: str, case: str, claimed: str, hits: int, total: int, tightness: str
) -> Row:
    """One line of the table of claims."""
    return {
        "guarantee": name,
        "case": case,
        "claimed": claimed,
        "hits": hits,
        "total": total,
        "tightness": tightness,
    }


def _people(seed: int, dims: int, num: int = 400, new: int = 20) -> tuple[Tensor, ...]:
    """Clusters of uneven density, and outputs with a step between and noise within."""
    generator = torch.Generator().manual_seed(seed)
    size = num + new
    centre = 3.0 * torch.randn(8, dims, generator=generator, dtype=torch.float64)
    group = torch.randint(0, 8, (size,), generator=generator)
    spread = 0.3 + torch.rand(8, 1, generator=generator, dtype=torch.float64)
    noise = torch.randn(size, dims, generator=generator, dtype=torch.float64)
    x = centre[group] + spread[group] * noise
    y = torch.rand(8, generator=generator, dtype=torch.float64)[group]
    y = y + 0.2 * torch.randn(size, generator=generator, dtype=torch.float64)
    return x[:num], y[:num], x[num:], y[num:]


def adversary(
    post: GLIFPostProcessor, x: Tensor, y: Tensor, delta: float, seed: int
) -> Tensor:
    """The largest difference that a search over places within ``delta`` finds."""
    generator = torch.Generator().manual_seed(seed)
    size, dims, tries = len(x), x.size(1), 200
    base = post.transform(x, y)
    best, found = torch.zeros(size, dtype=x.dtype), torch.zeros_like(x)
    spread = delta
    for _ in range(12):
        step = torch.randn(size, tries, dims, generator=generator, dtype=x.dtype)
        step = found.unsqueeze(1) + spread * step / step.norm(dim=2, keepdim=True)
        length = step.norm(dim=2, keepdim=True)
        step = step * (delta * (1 - 1e-9) / length).clamp(max=1.0)
        moved = (x.unsqueeze(1) + step).reshape(-1, dims)
        out = post.transform(moved, y.repeat_interleave(tries))
        value, at = (out.reshape(size, tries) - base.unsqueeze(1)).abs().max(1)
        better = (value > best).unsqueeze(1)
        best = torch.maximum(best, value)
        found = torch.where(better, step[torch.arange(size), at], found)
        spread *= 0.6
    return best


def newcomers(repeats: int) -> Iterator[Row]:
    """Bounds within a fair distance, against an adversary who chooses the place."""
    rules: dict[str, dict[str, Any]] = {
        "radius": {"target_degree": 20},
        'radius, "density"': {"target_degree": 20, "normalization": "density"},
        "ten nearest": {"k": 10},
    }
    for rule, params in rules.items():
        for dims in (2, 20):
            for part in (0.05, 0.2):
                hits, total, ratios = 0, 0, []
                for seed in range(repeats):
                    x, y, x_new, y_new = _people(seed, dims)
                    post = GLIFPostProcessor(lam=1.0, **params).fit(x, y)
                    scale = post.similarity_.sq_dist.double().sqrt().median()
                    delta = part * float(scale)
                    bound = certify(post.fit_, x_new, delta, y_new, dy=0.0).gap
                    gap = adversary(post, x_new, y_new, delta, seed)
                    hits += int((gap <= bound).sum())
                    total += len(gap)
                    some = bound > 1e-9
                    ratios += (gap[some] / bound[some]).tolist()
                case = f"{rule}, {dims} coordinates, delta {part:g} of a median edge"
                yield row(
                    "gap to anybody within delta",
                    case,
                    "always",
                    hits,
                    total,
                    f"found / bound: median {np.median(ratios):.2f}, "
                    f"most {max(ratios):.2f}",
                )
    # The assumption on outputs, broken: the other has an output beyond the range.
    hits, total = 0, 0
    for seed in range(repeats):
        x, y, x_new, y_new = _people(seed, 2)
        post = GLIFPostProcessor(lam=1.0).fit(x, y)
        bound = certify(post.fit_, x_new, 0.05, y_new)
        far = post.transform(x_new, torch.full_like(y_new, float(y.max()) + 3.0))
        hits += int((far <= bound.high).sum())
        total += len(far)
    yield row(
        "gap to anybody within delta",
        "broken: an output 3 beyond the range",
        "nothing",
        hits,
        total,
        "`y_range=` below `y_hat_new` is an error",
    )


def _smoothed(x: Tensor, y: Tensor, **params: Any) -> GLIFPostProcessor:
    return GLIFPostProcessor(solver=Cholesky(rtol=1e-12), **params).fit(x, y)


def influence(repeats: int) -> Iterator[Row]:
    """What one person does to others, against the inverse and fits without them."""
    for lam in (0.1, 1.0, 10.0):
        own, others, leave = ([0, 0, []] for _ in range(3))
        for seed in range(repeats):
            x, y, *_ = _people(seed, 5, num=150)
            post = _smoothed(x, y, lam=lam, target_degree=15)
            found, graph = sensitivity(post.fit_), post.graph_
            weight = torch.zeros(150, 150, dtype=torch.float64)
            weight[tuple(graph.edge_index)] = graph.edge_weight.double()
            matrix = torch.eye(150) + lam * (torch.diag(weight.sum(1)) - weight)
            inverse = torch.linalg.inv(matrix.double())
            off = inverse - torch.diag(inverse.diag())
            for tally, value, bound in (
                (own, inverse.diag(), found.own),
                (others, off.amax(0), found.others),
            ):
                _count(tally, value, bound)
            assert found.leaving is not None
            before = post.y_fair_
            for i in range(0, 150, 10):
                stay = torch.arange(150) != i
                rest = _smoothed(x[stay], y[stay], lam=lam, tau=post.tau_).y_fair_
                moved = (rest - before[stay]).abs().max()
                _count(leave, moved.view(1), found.leaving[i : i + 1])
        for name, tally in (
            ("own output, per unit of change", own),
            ("anybody else's output, per unit of change", others),
            ("anybody's output when one leaves", leave),
        ):
            hits, total, ratios = tally
            tight = f"true / bound: median {np.median(ratios):.2f}"
            yield row(name, f"lam = {lam:g}", "always", hits, total, tight)


def _count(tally: list[Any], value: Tensor, bound: Tensor) -> None:
    """Adds what held and how tightly."""
    tally[0] += int((value <= bound * (1 + 1e-9) + 1e-12).sum())
    tally[1] += value.numel()
    some = bound > 1e-9
    tally[2] += (value[some] / bound[some]).tolist()


def errors(repeats: int) -> Iterator[Row]:
    """Standard errors from random vectors: do all intervals hold at once?"""
    x, y, *_ = _people(0, 5, num=500)
    post = GLIFPostProcessor(lam=2.0).fit(x, y)
    graph = post.graph_
    weighted = (graph.edge_index, graph.edge_weight)
    options: dict[str, Any] = {"lam": 2.0, "solver": Cholesky()}
    exact = smoothing_std(y, *weighted, **options)
    for alpha in (0.2, 0.05):
        for probes in (64, 256):
            hits, widths, single = 0, [], 0
            for seed in range(repeats):
                noise = Noise(
                    exact_up_to=0,
                    num_probes=probes,
                    alpha=alpha,
                    generator=torch.Generator().manual_seed(seed),
                )
                some = smoothing_std(y, *weighted, variance=noise, **options)
                inside = (some.low <= exact.std) & (exact.std <= some.high)
                hits += bool(inside.all())
                single += int(inside.sum())
                widths.append(float(((some.high - some.low) / (2 * exact.std)).mean()))
            yield row(
                "standard errors of 500 people at once",
                f"alpha = {alpha:g}, {probes} random vectors",
                f"{1 - alpha:.0%}",
                hits,
                repeats,
                f"half width {np.mean(widths):.0%} of the value",
            )
    yield from _noisy(post, x, y, repeats)


def _noisy(
    post: GLIFPostProcessor, x: Tensor, y: Tensor, repeats: int
) -> Iterator[Row]:
    """95% intervals of smoothed outputs, under the noise assumed and another."""
    generator = torch.Generator().manual_seed(1)
    sigma, new = 0.1, x[:200] + 0.01
    info = post.transform_info(new, y[:200], with_std=True)
    std = info.uncertainty.std
    clean = post.transform(new, y[:200])
    columns = max(20, repeats)
    for case, shared in (("independent errors", 0.0), ("broken: half shared", 0.5)):
        noise = torch.randn(len(x), columns, generator=generator, dtype=torch.float64)
        own = torch.randn(200, columns, generator=generator, dtype=torch.float64)
        common = torch.randn(1, columns, generator=generator, dtype=torch.float64)
        mix = math.sqrt(1 - shared)
        noise, own = (mix * part + math.sqrt(shared) * common for part in (noise, own))
        again = GLIFPostProcessor(tau=post.tau_, lam=2.0)
        again.fit(x, y.unsqueeze(1) + sigma * noise)
        out = again.transform(new, y[:200].unsqueeze(1) + sigma * own)
        apart = (out - clean.unsqueeze(1)).abs()
        hits = int((apart <= 1.96 * sigma * std.unsqueeze(1)).sum())
        spread = out.std(1) / (sigma * std)
        yield row(
            "1.96 standard errors of a newcomer",
            case,
            "95%" if shared == 0 else "nothing",
            hits,
            apart.numel(),
            f"true / claimed: median {float(spread.median()):.2f}",
        )


def annotators(repeats: int) -> Iterator[Row]:
    """The worst annotator beside the average, and the duality gap."""
    hits, gains, gaps = 0, [], []
    for seed in range(repeats):
        x, y, *_ = _people(seed, 6, num=300)
        graphs = []
        for a in range(3):  # each looks at two coordinates
            part = x[:, 2 * a : 2 * a + 2].contiguous()
            index = RadiusIndex(part, 0.4)
            i, j, _ = index.query(part)
            graphs.append(torch.stack([i[i != j], j[i != j]]))
        exact = Cholesky(rtol=1e-12)
        best = smooth_worst_case(y, graphs, lam=0.3, solver=exact).value
        solution = smooth_worst_case(y, graphs, lam=0.3)
        found = solution.disagreement
        assert found is not None
        apart = float((solution.value - best).square().sum())
        hits += apart <= found.gap * (1 + 1e-9) + 1e-18
        gains.append(float(found.energy.max() / found.average_energy.max()))
        gaps.append(math.sqrt(found.gap / float(y.square().sum())))
    yield row(
        "distance to the optimum for the worst annotator",
        "3 annotators, 300 people",
        "always",
        hits,
        repeats,
        f"worst energy {np.mean(gains):.2f} of that of the average; "
        f"bound {max(gaps):.0e} of the outputs",
    )


def forgetting(repeats: int) -> Iterator[Row]:
    """A fit that forgot, against a fit without them."""
    anew = "broken: a radius that is suggested anew"
    rules: dict[str, dict[str, Any]] = {"radius": {}, "ten nearest": {"k": 10}}
    for rule, params in {**rules, anew: {}}.items():
        hits, shares = 0, []
        for seed in range(repeats):
            x, y, *_ = _people(seed, 5)
            post = GLIFPostProcessor(lam=5.0, **params).fit(x, y)
            gone = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed))
            stay = torch.ones(len(x), dtype=torch.bool)
            stay[gone[:5]] = False
            given = params if params or rule == anew else {"tau": post.tau_}
            fresh = GLIFPostProcessor(lam=5.0, **given).fit(x[stay], y[stay])
            post.forget(gone[:5])
            apart = float((post.y_fair_ - fresh.y_fair_).norm())
            bound = post.solution_.error_bound + fresh.solution_.error_bound
            hits += apart <= float(bound[0])
            shares.append(apart / float(bound[0]))
        yield row(
            "a fit without those who left",
            f"{rule}, 5 of 400 leave",
            "nothing" if rule == anew else "always",
            hits,
            repeats,
            f"found / bound: median {np.median(shares):.3g}",
        )


def cost(repeats: int, fitted: int = FITTED, new: int = NEW) -> Row:
    """Seconds beside those of ``transform`` and ``fit``."""
    x = embedding_like(fitted + new)
    generator = torch.Generator().manual_seed(1)
    mix = torch.randn(x.size(1), COLUMNS, generator=generator) / 28.0
    y = x @ mix + 0.3 * torch.randn(len(x), COLUMNS, generator=generator)
    known, rest = slice(0, fitted), slice(fitted, fitted + new)
    post = GLIFPostProcessor(target_degree=DEGREE, lam=LAM).fit(x[known], y[known])
    delta = 0.02 * post.tau_
    post.transform(x[rest][:1], y[rest][:1])
    certify(post.fit_, x[rest][:1], delta, y[rest][:1])
    people = iter(range(10**9))

    def forget() -> None:
        post.forget(next(people) % 1000)

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "fit.safetensors"
        contestants: dict[str, Callable[[], Any]] = {
            "transform": lambda: post.transform(x[rest], y[rest]),
            "transform, with certificate": lambda: post.transform_info(
                x[rest], y[rest]
            ),
            "certify, delta 0.02 tau": lambda: certify(
                post.fit_, x[rest], delta, y[rest]
            ),
            "sensitivity": lambda: sensitivity(post.fit_),
        }
        seconds = interleaved(contestants, repeats)
        post.save(path)
        slow: dict[str, Callable[[], Any]] = {
            "fit": lambda: GLIFPostProcessor(tau=post.tau_, lam=LAM).fit(
                x[known], y[known]
            ),
            "forget one": forget,
            "forget one, file rewritten": lambda: post.forget(
                next(people) % 1000, path=path
            ),
            "first transform afterwards, one row": lambda: post.transform(
                x[rest][:1], y[rest][:1]
            ),
        }
        seconds |= interleaved(slow, repeats)
        noise: dict[str, Callable[[], Any]] = {
            "standard errors, 256 random vectors": lambda: post.transform_info(
                x[rest], y[rest], with_std=True
            )
        }
        seconds |= interleaved(noise, 1)
    return {
        "question": f"{fitted:,} x {x.size(1)}, {new:,} newcomers",
        "seconds": seconds,
    }


def claims(rows: list[Row]) -> str:
    """The table of claims: level, what was measured, how tight."""
    lines = []
    for one in rows:
        measured = f"{share(one['hits'], one['total'])} of {one['total']:,}"
        cells = [one["guarantee"], one["case"], one["claimed"], measured]
        lines.append([*cells, one["tightness"]])
    return table(["guarantee", "case", "claimed", "measured", "tightness"], lines)


def costs(rows: list[Row]) -> str:
    """Seconds, beside those of ``transform`` and of ``fit``."""
    lines = []
    for one in rows:
        seconds = one["seconds"]
        for name, value in seconds.items():
            median = value["median"]
            ratios = (
                f"{median / seconds[other]['median']:.3g}"
                for other in ("transform", "fit")
            )
            lines.append([one["question"], name, f"{median:.3g} s", *ratios])
    header = ["people", "what", "seconds", "of `transform`", "of `fit`"]
    return table(header, lines)


PARTS: dict[str, tuple[Callable[[int], Iterator[Row]], int]] = {
    "newcomers": (newcomers, 10),
    "sensitivity": (influence, 10),
    "errors": (errors, 200),
    "annotators": (annotators, 20),
    "forgetting": (forgetting, 50),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", default=[*PARTS, "cost"])
    parser.add_argument("--repeats", type=int, default=None)
    parser.add_argument("--fitted", type=int, default=FITTED)
    parser.add_argument("--new", type=int, default=NEW)
    options = parser.parse_args()
    for name, (run, repeats) in PARTS.items():
        if name in options.parts:
            rows = []
            for one in run(options.repeats or repeats):
                rows.append(one)
                print(claims([one]).splitlines()[-1], flush=True)
            write("guarantees", rows, key=("guarantee", "case"))
    if "cost" in options.parts:
        rows = [cost(options.repeats or 3, options.fitted, options.new)]
        print(costs(rows), flush=True)
        write("guarantees_cost", rows, key=("question",))
    write_page()


def write_page() -> None:
    """The tables of the documentation, from what is in ``results``."""
    import json

    parts = []
    for name, show in (("guarantees", claims), ("guarantees_cost", costs)):
        path = RESULTS / f"{name}.json"
        if path.exists():
            parts.append(show(json.loads(path.read_text())["rows"]))
    PAGE.write_text("\n\n".join(parts) + "\n")


if __name__ == "__main__":
    main()
