"""Time, memory and disk of a large run, from a sample of its rows."""

import math
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from pyg_glif._utils.runtime import without_autocast
from pyg_glif._utils.validation import check_count, check_scalar
from pyg_glif.distances import FairDistance
from pyg_glif.distributed._inputs import Paths, RowFiles
from pyg_glif.distributed.engine import InProcess
from pyg_glif.distributed.sharded_dataset import ShardedDataset, radius_for_degree
from pyg_glif.graph.blocks import (
    Block,
    BlockSearch,
    Extent,
    Frame,
    as_distance,
    in_compact_order,
    largest_norm,
    sample_of,
    sample_step,
    width_for,
)

# Sizes of samples: runs of nearby points are equally long in all of these.
_SIZES = (8_000, 32_000, 64_000, 128_000)
_SAMPLE_BYTES = 400e6
_TILES = 64  # of the largest sample, about, whose search is timed
_START = 4.0  # seconds until the members of a solve run
_EFFICIENCY = 0.7  # of cores that share memory, disk and the ends of a run
_HALO = 2.5  # rows of others per own row, beyond 64 parts
_ITERATIONS = 50


@dataclass(frozen=True)
class Plan:
    """Requirements of a run, and the measurements behind them.

    ``str(plan)`` is a table with the arithmetic.

    Args:
        num_samples (int): Samples of the run.
        workers (int): Machines.
        cores (int): Cores of each.
        tau (float): The radius.
        degree (float): Mean number of neighbors.
        measured (float): Seconds of one core to search the largest sample.
        left (dict): Share of all pairs that pruning leaves, by size of a sample.
        exponent (float): Power of the number of samples that the search grows by.
        build_hours (float): Reading, sorting and writing rows.
        search_hours (float): The search.
        solve_hours (float): The solve.
        memory (float): Bytes for each worker.
        network (float): Bytes that a worker receives in an iteration of the solve.
        disk (float): Bytes of rows and edges, all together.
    """

    num_samples: int
    workers: int
    cores: int
    tau: float
    degree: float
    measured: float
    left: dict[int, float]
    exponent: float
    build_hours: float
    search_hours: float
    solve_hours: float
    memory: float
    network: float
    disk: float

    def __str__(self) -> str:
        largest, gib = max(self.left), 2.0**30
        over = f"over {self.workers * self.cores} cores at {_EFFICIENCY:.0%}"
        rows = [
            ("samples", f"{self.num_samples:,}"),
            ("workers x cores", f"{self.workers} x {self.cores}"),
            ("radius", f"{self.tau:.5g}"),
            ("neighbors each", f"{self.degree:.3g}"),
            ("pairs after pruning", f"{min(self.left.values()):.2%} in the sample"),
            ("search grows as", f"n^{self.exponent:.2f}"),
            ("build", f"{self.build_hours:.3g} h {over}"),
            (
                "search",
                f"{self.search_hours:.3g} h: {self.measured:.3g} s of one core "
                f"for {largest:,} samples, times ({self.num_samples:,} / {largest:,})"
                f"^{self.exponent:.2f}, {over}",
            ),
            ("solve", f"{self.solve_hours:.3g} h of {_ITERATIONS} iterations"),
            ("memory per worker", f"{self.memory / gib:.2g} GiB"),
            ("network per iteration", f"{self.network / gib:.2g} GiB per worker"),
            ("disk", f"{self.disk / gib:.3g} GiB: rows twice, 16 bytes per edge"),
        ]
        width = max(len(name) for name, _ in rows)
        return "\n".join(f"{name:<{width}}  {value}" for name, value in rows)


@without_autocast()
def plan(
    rows: Paths,
    *,
    num_samples: float,
    workers: int = 1,
    cores: int = 1,
    tau: float | None = None,
    degree: float = 40.0,
    outputs: int = 2,
    features: str | list[str] | None = None,
    distance: FairDistance | None = None,
) -> Plan:
    """Plans a run from a sample of its own rows.

    Counts the pairs that pruning leaves in samples of growing size, extrapolates the
    trend of the largest ones, and times some of the search on one core. Pruning depends
    on the data and the radius: synthetic rows say little about real ones.

    Args:
        rows (str or sequence of str): Parquet or ``.npy`` files, as for
            :meth:`ShardedDataset.build`; a sample is read.
        num_samples (float): Samples of the run.
        workers (int): Machines. (default: :obj:`1`)
        cores (int): Cores of each. (default: :obj:`1`)
        tau (float, optional): The radius. (default: from ``degree``)
        degree (float): Neighbors each at the planned size. (default: :obj:`40.0`)
        outputs (int): Columns that are smoothed. (default: :obj:`2`)
        features (str or list of str, optional): Columns of the distance.
        distance (FairDistance, optional): A distance with an embedding.

    Example:
        >>> import tempfile, numpy as np
        >>> folder = tempfile.mkdtemp()
        >>> rows = np.random.default_rng(0).normal(size=(3000, 8)).astype("float32")
        >>> np.save(f"{folder}/rows.npy", rows)
        >>> planned = plan(f"{folder}/rows.npy", num_samples=1e5, workers=2, cores=4)
        >>> planned.num_samples, round(planned.tau, 2)  # 40 neighbors each
        (100000, 1.15)
    """
    check_count("workers", workers)
    check_count("cores", cores)
    number = int(check_scalar("num_samples", num_samples, minimum=1.0))
    z = _sample(RowFiles.open("rows", rows, features), as_distance(distance))
    if len(z) < 64:
        msg = "'rows' must hold at least 64 rows to plan from"
        raise ValueError(f"{msg} (got {len(z)})")
    frame = Frame.of(z[:: sample_step(len(z))], Extent.of(z))
    pairs = sample_of(frame, z, None, number)
    tau = radius_for_degree(pairs, degree, number) if tau is None else tau
    tau = check_scalar("tau", tau, minimum=0.0)
    edges = int((pairs.dist <= tau).sum()) * pairs.weight
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        measured, left = _time_search(frame, z, tau)
        build = _time_build(z) * number
    finally:
        torch.set_num_threads(threads)
    exponent, speed = _growth(left), workers * cores * _EFFICIENCY
    # A sparse product takes about 1 ns per entry and column, dense work as much.
    step = outputs * (edges * 1e-9 + number * 2e-8) / (workers * cores) * 2.0
    halo = min(_HALO, float(workers)) * number / workers * outputs * 8
    state = 12 * outputs * 8 + 32 * edges / number  # bytes per sample in a solve
    row = z.size(1) * z.element_size()
    return Plan(
        number,
        workers,
        cores,
        tau,
        edges / number,
        measured,
        left,
        exponent,
        build_hours=build / speed / 3600.0,
        search_hours=measured * (number / max(left)) ** exponent / speed / 3600.0,
        solve_hours=(_START + _ITERATIONS * (step + halo / 1e9)) / 3600.0,
        memory=number / workers * state + cores * 3e8,
        network=halo,
        disk=number * (row + 4 * 65 + 20) * 2.0 + edges * 16,
    )


def _sample(table: RowFiles, distance: FairDistance) -> Tensor:
    """Coordinates of rows from all over the input, in random order."""
    most = min(_SIZES[-1], int(_SAMPLE_BYTES / (4 * max(1, table.width))))
    most = max(_SIZES[0], most)
    step = max(1, table.num_rows // most)
    parts = []
    for piece in table.pieces(1 << 15):
        values = table.read(piece).values[-piece.first % step :: step]
        if len(values):
            parts.append(distance.embed(torch.from_numpy(values.copy())).detach())
    z = torch.cat(parts)
    generator = torch.Generator().manual_seed(0)
    return z[torch.randperm(len(z), generator=generator)[:most]].contiguous()


def _time_search(frame: Frame, z: Tensor, tau: float) -> tuple[float, dict[int, float]]:
    """Seconds of one core to search a sample, and shares that pruning leaves."""
    width = width_for(frame, z[: _SIZES[1] // 2], tau)
    if width is None:  # all pairs are evaluated: a small sample is enough
        z = z[: _SIZES[0]]
    left = {}
    for size in [size for size in _SIZES if size <= len(z)] or [len(z)]:
        points = frame.points(z[:size])
        w = frame.bounds(points)
        order, leaf = in_compact_order(w, None)
        ordered = frame.points(z[order])
        block = Block(w[order], leaf, None, lambda ordered=ordered: ordered)  # type: ignore[misc]
        search = BlockSearch(frame, tau, largest_norm(points.sq_norm), width)
        every = 1 if width is None else max(1, size // (256 * _TILES))
        left[size] = search.share_left(block, every)
    start = time.process_time()
    for _ in search.within(block, every):
        pass
    return max((time.process_time() - start) * every, 1e-4), left


def _growth(left: dict[int, float]) -> float:
    """Power that the remaining pairs grow by, in the larger half of the sizes."""
    sizes = sorted(left)
    first, last = sizes[len(sizes) // 2 - 1], sizes[-1]
    if first == last:
        return 2.0
    slope = math.log(left[last] / left[first]) / math.log(last / first)
    return min(max(2.0 + slope, 1.0), 2.0)


def _time_build(z: Tensor) -> float:
    """Seconds of one core per row to put rows into blocks."""
    z = z[:16_000]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.npy"
        np.save(path, z.numpy())
        start = time.process_time()
        ShardedDataset.build(
            Path(folder) / "dataset",
            path,
            block_rows=max(256, len(z) // 4),
            engine=InProcess(progress=False),
        )
        return (time.process_time() - start) / len(z)
