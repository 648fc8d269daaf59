"""Learn lambda, theta and the fair metric itself through the smoothing layer.

A model scores 600 people. The truth depends on two features; the model has also picked
up a third one that should not matter (and a good deal of noise), while a fourth is
irrelevant. Only a tenth of the people have a reviewed, trusted score.

We smooth the model's scores over a graph of similar people. What "similar" means
is not given: a Mahalanobis metric, the kernel width theta and the strength lambda are
all learned from the few trusted scores, by gradients through the linear solve.

    python examples/learn_metric_end_to_end.py
"""

import torch
from torch import Tensor, nn

from pyg_glif import GLIFConv, edge_weights, fair_radius_graph
from pyg_glif.distances import Mahalanobis
from pyg_glif.graph import edge_sq_dist

NAMES = ["income", "experience", "group", "noise"]


class LearnedSmoother(nn.Module):
    """Mahalanobis metric -> edge weights -> smoothing, all three learned."""

    def __init__(self, num_features: int) -> None:
        super().__init__()
        self.distance = Mahalanobis(torch.eye(num_features), learnable=True)
        self.log_theta = nn.Parameter(torch.tensor(0.0))
        self.smooth = GLIFConv(lam=0.1, learn_lam=True)

    @property
    def theta(self) -> Tensor:
        """Kernel decay, positive whatever the parameter is."""
        return self.log_theta.exp()

    def forward(self, x: Tensor, y_hat: Tensor, edge_index: Tensor) -> Tensor:
        """Smooths ``y_hat`` over the graph the current metric implies."""
        sq_dist = edge_sq_dist(self.distance.embed(x), edge_index)
        return self.smooth(y_hat, edge_index, edge_weights(sq_dist, self.theta))


def make_people(num_nodes: int = 600) -> tuple[Tensor, Tensor, Tensor]:
    """Features, the model's scores, and the scores people deserve."""
    generator = torch.Generator().manual_seed(7)
    x = torch.randn(num_nodes, len(NAMES), generator=generator)
    x[:, 2] = x[:, 2].sign()  # two groups
    truth = torch.sin(2.0 * x[:, 0]) + 0.7 * x[:, 1]
    noise = 0.4 * torch.randn(num_nodes, generator=generator)
    return x, truth + 0.5 * x[:, 2] + noise, truth


def main() -> None:
    """Trains, and prints what was learned."""
    x, y_hat, truth = make_people()
    # Which pairs may be compared is decided once, generously; how much each pair
    # counts is learned.
    edge_index, _ = fair_radius_graph(x, tau=2.5)
    trusted = torch.arange(x.size(0)) % 10 == 0

    model = LearnedSmoother(x.size(1))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    print(
        f"{x.size(0)} people, {edge_index.size(1)} edges, {int(trusted.sum())} trusted"
    )
    print("\n step | loss on trusted | error of the others | lambda |  theta")
    for step in range(121):
        y_fair = model(x, y_hat, edge_index)
        loss = (y_fair - truth)[trusted].square().mean()
        if step % 20 == 0:
            others = (y_fair - truth)[~trusted].square().mean()
            lam, theta = model.smooth.lam.item(), model.theta.item()
            print(
                f"{step:5d} | {loss.item():15.4f} | {others.item():19.4f}"
                f" | {lam:6.3f} | {theta:6.3f}"
            )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    share = model.distance.sigma.diagonal().detach()
    share = share / share.sum()
    print("\nfeature    | share of the learned metric (0.25 each at the start)")
    for name, value in zip(NAMES, share.tolist(), strict=True):
        print(f"{name:10s} | {value:6.3f}  {'#' * round(50 * value)}")
    before = (y_hat - truth)[~trusted].square().mean().item()
    print(f"\nerror of the model's own scores, others: {before:.4f}")


if __name__ == "__main__":
    main()
