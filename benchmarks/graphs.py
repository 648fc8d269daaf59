"""On a graph of 30,000 people: what does GLIF cost, next to training GUIDE?

Run ``python benchmarks/graphs.py`` (about two minutes on one core). It takes the graph
``credit`` if it is found (see ``PYG_GLIF_DATA``), and a made-up one of its size if not.
"""

import time
from typing import Any

import report
import torch
from common import PeakMemory, in_fresh_process, interleaved, spread, write
from torch import Tensor, nn

from experiments.baselines import GroupEqualityLoss, guide_head
from experiments.datasets import SensitiveGraph
from pyg_glif import glif_smooth
from pyg_glif.graph import SimilarityGraph, structural_similarity
from pyg_glif.laplacian import LaplacianOperator
from pyg_glif.methods import smooth_balanced

SIZE = 30_000
# Published, at a learning rate of 0.001; ours, at 0.01.
PUBLISHED, OURS = 3_000, 300
TIMED = 40  # steps that are timed


def people() -> tuple[str, Tensor, Tensor, Tensor, Tensor]:
    """A graph, features, labels and groups."""
    try:
        data = SensitiveGraph(name="credit")[0]
    except FileNotFoundError:
        generator = torch.Generator().manual_seed(0)
        x = torch.randn(SIZE, 13, generator=generator)
        links = SimilarityGraph.nearest(x, 6).edge_index
        y = (x[:, 0] + torch.randn(SIZE, generator=generator) > 0).long()
        group = (torch.rand(SIZE, generator=generator) < 0.1).long()
        return "made up", links, x, y, group
    return "credit", data.edge_index, data.x, data.y, data.group


def similar(links: Tensor) -> LaplacianOperator:
    """Who is similar to whom: cosines of the rows of the adjacency matrix."""
    index, value = structural_similarity(links, SIZE, progress=False)
    return LaplacianOperator.from_sorted(index, value, SIZE)


def smoothed(links: Tensor, score: Tensor, group: Tensor | None = None) -> Tensor:
    """GLIF from a graph and outputs to fair outputs, balanced if groups are given."""
    if group is None:
        return glif_smooth(score, similar(links))
    return smooth_balanced(score, similar(links), groups=group).value


class Guide:
    """GUIDE's network over an embedding, trained step by step."""

    def __init__(self, links: Tensor, x: Tensor, y: Tensor, group: Tensor) -> None:
        torch.manual_seed(0)
        self.x, self.y, self.group = x, y.float(), group
        self.lap, self.head = similar(links), guide_head(x.size(1))
        self.loss = GroupEqualityLoss()
        self.optimizer = torch.optim.Adam(self.head.parameters(), 0.01)

    def step(self) -> None:
        """One epoch: everybody, forward and backward."""
        self.optimizer.zero_grad()
        logits = self.head(self.x, self.lap, None)[:, 0]
        right = nn.functional.binary_cross_entropy_with_logits(logits, self.y)
        (right + self.loss(logits, self.lap, self.group)).backward()
        self.optimizer.step()

    def seconds(self) -> list[float]:
        """Processor time of single steps, once warm."""
        self.step()
        out = []
        for _ in range(TIMED):
            start = time.process_time()
            self.step()
            out.append(time.process_time() - start)
        return out


def memory(balanced: bool) -> int:
    """Bytes that smoothing holds at most, its similarity graph included."""
    _, links, x, _, group = people()
    score = x[:, 0].double()
    with PeakMemory() as peak:
        smoothed(links, score, group if balanced else None)
    return peak.bytes


def main() -> None:
    """Times everybody in one run."""
    torch.set_num_threads(1)
    name, links, x, y, group = people()
    score = torch.linspace(-1, 1, SIZE, dtype=torch.float64).sin() + x[:, 0].double()
    seconds: dict[str, Any] = interleaved(
        {
            "similarity alone": lambda: similar(links),
            "GLIF": lambda: smoothed(links, score),
            "GLIF, balanced": lambda: smoothed(links, score, group),
        },
        repeats=3,
        clock=time.process_time,
    )
    embedding = x @ torch.randn(x.size(1), 16, generator=torch.Generator())
    step = spread(Guide(links, embedding, y, group).seconds())
    for steps in (OURS, PUBLISHED):
        seconds[f"GUIDE, {steps:,} steps"] = {
            key: value if key == "runs" else steps * value
            for key, value in step.items()
        }
    held = {
        key: in_fresh_process(memory, balanced) / 2**20
        for key, balanced in (("GLIF", False), ("GLIF, balanced", True))
    }
    row = {
        "data": name,
        "people": SIZE,
        "pairs": similar(links).num_edges // 2,
        "seconds": seconds,
        "memory_mib": held,
        "dense_mib": SIZE**2 * 4 / 2**20,
    }
    write("graphs", [row], ("data",))
    report.main()


if __name__ == "__main__":
    main()
