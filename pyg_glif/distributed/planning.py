"""What a run of a given size will take, from a sample of one's own rows."""

import math
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from pyg_glif._utils.runtime import without_autocast
from pyg_glif._utils.validation import check_count, check_scalar
from pyg_glif.distances import FairDistance
from pyg_glif.distributed._inputs import Paths, Table
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

# People who are sampled: runs of neighbors are equally long in all of these.
_SIZES = (8_000, 32_000, 64_000, 128_000)
_BYTES = 400e6  # of their coordinates
_TILES = 64  # of a sample's, about, whose search is timed
_START = 4.0  # seconds until the members of a solve run
_EFFICIENCY = 0.7  # of cores that share memory, disk and the ends of a run
_HALO = 2.5  # rows of others per own row, beyond 64 parts
_ITERATIONS = 50
_FEWEST_PAIRS = 8  # sampled pairs within the radius, to tell a degree from


@dataclass(frozen=True)
class Plan:
    """What a run will take, and from what it was worked out.

    Args:
        people (int): How many people are planned for.
        workers (int): Machines.
        cores (int): Cores of each.
        tau (float): The radius.
        degree (float): Neighbors each, on average.
        measured (float): Seconds of one core to search the largest sample.
        left (dict): Share of all pairs that pruning leaves, by size of a sample.
        exponent (float): The power of the number of people that the search grows by.
        build_hours (float): Reading, sorting and writing rows.
        search_hours (float): The search.
        solve_hours (float): The solve.
        memory (float): Bytes for each worker.
        network (float): Bytes that a worker receives in an iteration of the solve.
        disk (float): Bytes of rows and edges, all together.
        arithmetic (list of str): How the numbers come about.
    """

    people: int
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
    arithmetic: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        gib = 2.0**30
        rows = [
            ("people", f"{self.people:,}"),
            ("workers x cores", f"{self.workers} x {self.cores}"),
            ("radius", f"{self.tau:.5g}"),
            ("neighbors each", f"{self.degree:.3g}"),
            (
                "pairs that pruning leaves",
                f"{min(self.left.values()):.2%} in the sample",
            ),
            ("search grows as", f"n^{self.exponent:.2f}"),
            ("build", _hours(self.build_hours)),
            ("search", _hours(self.search_hours)),
            ("solve", _hours(self.solve_hours)),
            ("memory per worker", f"{self.memory / gib:.2g} GiB"),
            ("network per iteration", f"{self.network / gib:.2g} GiB per worker"),
            ("disk", f"{self.disk / gib:.3g} GiB"),
        ]
        width = max(len(name) for name, _ in rows)
        lines = [f"{name:<{width}}  {value}" for name, value in rows]
        return "\n".join([*lines, "", *self.arithmetic])


@without_autocast()
def plan(
    rows: Paths,
    *,
    people: float,
    workers: int = 1,
    cores: int = 1,
    tau: float | None = None,
    degree: float = 40.0,
    outputs: int = 2,
    features: str | list[str] | None = None,
    distance: FairDistance | None = None,
) -> Plan:
    """Plans a run from a sample of the rows themselves.

    Counts what pruning leaves in samples of growing size, at the radius of the planned
    run, carries the trend of the largest ones on, and times some of the search on one
    core of this machine. Synthetic rows tell little about real ones: how much pruning
    leaves depends on the data and the radius.

    Args:
        rows (str or sequence of str): Parquet or ``.npy`` files, as for
            :meth:`ShardedDataset.build`; a sample is read.
        people (float): How many people the run will have.
        workers (int): Machines. (default: :obj:`1`)
        cores (int): Cores of each. (default: :obj:`1`)
        tau (float, optional): The radius. (default: from ``degree``)
        degree (float): Neighbors each at the planned size. (default: :obj:`40.0`)
        outputs (int): Columns that are smoothed. (default: :obj:`2`)
        features (str or list of str, optional): Columns that say who is similar.
        distance (FairDistance, optional): A distance with an embedding.

    Example:
        >>> import tempfile, numpy as np
        >>> folder = tempfile.mkdtemp()
        >>> rows = np.random.default_rng(0).normal(size=(3000, 8)).astype("float32")
        >>> np.save(f"{folder}/rows.npy", rows)
        >>> found = plan(f"{folder}/rows.npy", people=1e5, workers=2, cores=4)
        >>> found.people, round(found.tau, 2)  # 40 neighbors each
        (100000, 1.15)
    """
    check_count("workers", workers)
    check_count("cores", cores)
    number = int(check_scalar("people", people, minimum=1.0))
    table = Table.open("rows", rows, features)
    most = min(_SIZES[-1], int(_BYTES / (4 * max(1, table.width))))
    z = _sample(table, as_distance(distance), max(_SIZES[0], most))
    if len(z) < 64:
        msg = "'rows' must hold at least 64 people to plan from"
        raise ValueError(f"{msg} (got {len(z)})")
    frame = Frame.of(z[:: sample_step(len(z))], Extent.of(z))
    pairs = sample_of(frame, z, None, number)
    if tau is None:
        wanted = degree * number
        if pairs.rank(wanted) < _FEWEST_PAIRS:
            msg = "'tau' must be given where a sample has too few pairs that near"
            raise ValueError(f"{msg} (got {pairs.rank(wanted)} for degree {degree:g})")
        tau = pairs.radius(wanted)
    tau = check_scalar("tau", tau, minimum=0.0)
    hits = int((pairs.dist <= tau).sum())
    degree = hits * pairs.weight / number
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        measured, left = _searched(frame, z, tau)
        written = _write_seconds(z)
    finally:
        torch.set_num_threads(threads)
    return _planned(
        number, workers, cores, tau, degree, measured, left, z, outputs, written
    )


def _planned(
    people: int,
    workers: int,
    cores: int,
    tau: float,
    degree: float,
    measured: float,
    left: dict[int, float],
    z: Tensor,
    outputs: int,
    written: float,
) -> Plan:
    """The arithmetic."""
    exponent, largest = _growth(left), max(left)
    total_cores = workers * cores
    one = measured / total_cores / _EFFICIENCY
    search, squared = (one * (people / largest) ** power for power in (exponent, 2.0))
    row = z.size(1) * z.element_size()
    # Each row is read twice, written twice, checked and put in order.
    build = written * people / total_cores / _EFFICIENCY
    edges = degree * people
    # Of a sparse product about 1 ns per entry and column, with dense work as much.
    step = (edges * outputs * 1e-9 + people * outputs * 2e-8) / total_cores * 2.0
    halo = min(_HALO, float(workers)) * people / workers * outputs * 8
    solve = _START + _ITERATIONS * (step + halo / 1e9)
    state = 12 * outputs * 8 + 32 * degree
    memory = people / workers * state + cores * 3e8
    disk = people * (row + 4 * 65 + 20) * 2.0 + edges * 16
    lines = [
        f"search: {measured:.3g} s of one core for {largest:,} people, times "
        f"({people:,} / {largest:,})^{exponent:.2f}, over {total_cores} cores at "
        f"{_EFFICIENCY:.0%}",
        f"at n^2 it would take {_hours(squared / 3600.0)}",
        f"build: {written * 1e6:.3g} us of one core per row, over the same cores",
        f"solve: {_ITERATIONS} iterations, {edges:.3g} edges, {outputs} columns, and "
        f"{_START:g} s to start",
        f"memory: {state:.0f} bytes per person of a worker, and 0.3 GB for each core",
        f"network: {min(_HALO, float(workers)):g} rows of others per own row, 8 bytes "
        "per number",
        "disk: rows twice while they are sorted, and 16 bytes per edge",
    ]
    hour = 3600.0
    return Plan(
        people, workers, cores, tau, degree, measured, left, exponent, build / hour,
        search / hour, solve / hour, memory, halo, disk, lines,
    )  # fmt: skip


def _growth(left: dict[int, float]) -> float:
    """The power by which pairs that are left grow, in the larger half of the sizes."""
    sizes = sorted(left)
    first, last = sizes[len(sizes) // 2 - 1], sizes[-1]
    if first == last:
        return 2.0
    slope = math.log(left[last] / left[first]) / math.log(last / first)
    return min(max(2.0 + slope, 1.0), 2.0)


def _sample(table: Table, distance: FairDistance, most: int) -> Tensor:
    """Coordinates of people from all over the input, in random order."""
    step = max(1, table.num_rows // most)
    parts = []
    for piece in table.pieces(1 << 15):
        first = -piece.first % step
        values = table.read(piece).values[first::step]
        if len(values):
            parts.append(distance.embed(torch.from_numpy(values.copy())).detach())
    z = torch.cat(parts)
    generator = torch.Generator().manual_seed(0)
    return z[torch.randperm(len(z), generator=generator)[:most]].contiguous()


def _searched(frame: Frame, z: Tensor, tau: float) -> tuple[float, dict[int, float]]:
    """Seconds of one core to search a sample, and shares that pruning leaves."""
    width = width_for(frame, z[: _SIZES[1] // 2], tau)
    if width is None:  # all pairs are looked at: few people tell it
        z = z[: _SIZES[0]]
    left = {}
    for size in [size for size in _SIZES if size <= len(z)] or [len(z)]:
        block, largest = _ordered(frame, z[:size])
        search = BlockSearch(frame, tau, largest, width)
        every = 1 if width is None else max(1, size // (256 * _TILES))
        left[size] = search.share_left(block, every)
    block.points  # noqa: B018  (reading is not timed)
    start = time.process_time()
    for _ in search.within(block, every):
        pass
    return max((time.process_time() - start) * every, 1e-4), left


def _ordered(frame: Frame, z: Tensor) -> tuple[Block, float]:
    """A sample as one block, and its largest norm."""
    points = frame.points(z)
    w = frame.bounds(points)
    order, leaf = in_compact_order(w, None)
    block = Block(w[order], leaf, None, lambda: frame.points(z[order]))
    return block, largest_norm(points.sq_norm)


def _write_seconds(z: Tensor) -> float:
    """Seconds of one core per row to put rows into blocks."""
    from pyg_glif.distributed.engine import InProcess
    from pyg_glif.distributed.sharded_dataset import ShardedDataset

    z = z[:16_000]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.npy"
        np.save(path, z.numpy())
        start = time.process_time()
        ShardedDataset.build(
            Path(folder) / "people",
            path,
            block_rows=max(256, len(z) // 4),
            engine=InProcess(),
            progress=False,
        )
        return (time.process_time() - start) / len(z)


def _hours(hours: float) -> str:
    """A time in the unit that suits it."""
    if hours >= 48.0:
        return f"{hours / 24.0:.3g} days"
    if hours >= 1.0:
        return f"{hours:.3g} hours"
    minutes = hours * 60.0
    return f"{minutes:.3g} min" if minutes >= 1.0 else f"{minutes * 60.0:.3g} s"
