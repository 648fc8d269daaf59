"""
A graph network: connected is not comparable
============================================

A graph network passes messages along links. Who is linked says little about who is
comparable, so fairness needs a second graph: near in the features, whatever the group.
GLIF smooths the outputs over it, and can also see to it that no group bears more of
what remains.
"""

import matplotlib.pyplot as plt
import numpy as np
import torch
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv

from experiments.datasets import SensitiveGraph
from pyg_glif import FairKNNGraph, glif_smooth
from pyg_glif.distances import SensitiveSubspace
from pyg_glif.methods import smooth_balanced
from pyg_glif.metrics import group_disparity

# %%
# People and links
# ----------------
# Players of the NBA, their accounts' links and who comes from abroad, if the files are
# there; people who know their own group, and are made up, if not.


def made_up(size=400):
    """Two groups, links within them, and labels that lean on the group."""
    generator = torch.Generator().manual_seed(0)
    group = (torch.rand(size, generator=generator) < 0.3).long()
    x = torch.randn(size, 4, generator=generator)
    links = torch.randint(size, (2, 12 * size), generator=generator)
    links = links[:, group[links[0]] == group[links[1]]]
    noise = 0.3 * torch.randn(size, generator=generator)
    y = (x[:, 0] + 0.5 * x[:, 1] - 0.7 * group + noise > 0).long()
    return Data(
        x=torch.cat([x, 2.0 * group.unsqueeze(1)], 1),
        y=y,
        edge_index=links,
        group=group,
    )


try:
    data = SensitiveGraph(name="nba")[0]
    sensitive = data.feature_names.index("country")
    print(f"{data.num_nodes} players of the NBA; group 1 comes from abroad.")
except FileNotFoundError:
    data = made_up()
    sensitive = data.num_features - 1
    print(f"{data.num_nodes} people who do not exist.")

# %%
# The network
# -----------
# Two graph convolutions, trained on half of the people whose label is known.

torch.manual_seed(0)
labelled = (data.y >= 0).nonzero().flatten()
labelled = labelled[torch.randperm(len(labelled))]
train, test = labelled[::2], labelled[1::2]


class Network(torch.nn.Module):
    """Two layers."""

    def __init__(self):
        super().__init__()
        self.first, self.second = GCNConv(data.num_features, 16), GCNConv(16, 1)

    def forward(self, x, edge_index):
        """Log-odds."""
        hidden = self.first(x, edge_index).relu()
        return self.second(hidden, edge_index)[:, 0]


network = Network()
optimizer = torch.optim.Adam(network.parameters(), lr=0.02, weight_decay=5e-4)
for _ in range(60):
    optimizer.zero_grad()
    found = network(data.x, data.edge_index)[train]
    truth = data.y[train].float()
    torch.nn.functional.binary_cross_entropy_with_logits(found, truth).backward()
    optimizer.step()
with torch.no_grad():
    logits = network(data.x, data.edge_index)

# %%
# Comparable people, and the correction
# -------------------------------------
# The second graph joins everybody with the nearest ten in every feature but the
# sensitive one. ``smooth_balanced`` asks for as much energy per member in both groups.

direction = torch.eye(data.num_features)[[sensitive]]
fair = FairKNNGraph(10, distance=SensitiveSubspace(direction), name="fair")(data)
graph = fair.fair_edge_index, fair.fair_edge_weight
outputs = {
    "the network": logits,
    "GLIF": glif_smooth(logits, *graph, lam=0.5),
    "GLIF, balanced": smooth_balanced(logits, *graph, lam=0.5, groups=data.group).value,
}

# %%
# Before and after
# ----------------
# Left: how far the scores of comparable people lie apart. Right: how many times as much
# of that one group bears as the other, per member; 1 is even.

row, col = graph[0]
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
colours = dict(zip(outputs, ("#444444", "#0072B2", "#009E73"), strict=True))
widths = dict(zip(outputs, (2, 5, 2), strict=True))  # curves that coincide all show
for name, output in outputs.items():
    score = output.sigmoid()
    gap = (score[row] - score[col]).abs()
    accuracy = ((output > 0) == (data.y == 1))[test].double().mean()
    values = np.sort(gap.numpy())
    label = f"{name} (accuracy {accuracy:.2f})"
    style = {"color": colours[name], "linewidth": widths[name]}
    left.plot(values, np.linspace(0, 1, len(values)), label=label, **style)
    disparity = float(group_disparity(output, graph[0], data.group, graph[1]))
    right.hlines(name, 1, disparity, color=colours[name], linewidth=3)
    right.plot(disparity, name, "o", color=colours[name], markersize=9)
    right.annotate(f"   {disparity:.2f}", (disparity, name), va="center")
left.set(xlabel="difference of scores", ylabel="share of comparable pairs below")
left.locator_params(axis="x", nbins=5)
left.legend(fontsize=9)
left.grid(alpha=0.3)
right.invert_yaxis()
right.set(xlabel="disparity between the groups (1 is even)")
right.margins(x=0.25, y=0.3)
right.axvline(1, color="black", linewidth=0.8)
figure.show()

# %%
# :doc:`/graphs` has the layer inside of the network, sampled graphs and training.
