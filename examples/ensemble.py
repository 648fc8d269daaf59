"""Outputs that are known with different certainty: an ensemble, and dropout.

Five small networks see different halves of the data. Where they disagree about a
person, their mean is uncertain, and similar people whose outputs are known better
should have more of a say. A sixth network keeps its dropout switched on when it
predicts, and gives a standard deviation by itself. Both go into GLIF as 'y_std':
outputs that are known well are moved less than without it, the others more. Standard
errors come out, which take the errors of different people to be independent. The last
line of each table says how alike the deviations of neighbours are. (Dropout leaves out
other units for each person, so its deviations are independent by construction, and say
nothing about errors that people share.)
"""

import torch
from torch import Tensor, nn

from pyg_glif import GLIFPostProcessor

NUM_PEOPLE, NUM_NEW, NUM_FEATURES = 1200, 400, 6
EPOCHS, MEMBERS, DRAWS = 60, 5, 40


def network(dropout: float) -> nn.Sequential:
    """One number from features."""
    return nn.Sequential(
        nn.Linear(NUM_FEATURES, 32), nn.ReLU(), nn.Dropout(dropout), nn.Linear(32, 1)
    )


def trained(model: nn.Sequential, x: Tensor, y: Tensor) -> nn.Sequential:
    """The network after some steps on all rows."""
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02, weight_decay=1e-3)
    loss = nn.MSELoss()
    for _ in range(EPOCHS):
        optimizer.zero_grad()
        loss(model(x).squeeze(1), y).backward()
        optimizer.step()
    return model


def of_ensemble(x: Tensor, y: Tensor, people: Tensor) -> Tensor:
    """Outputs for everybody from networks that saw different people, one row each."""
    rows = []
    for _ in range(MEMBERS):
        half = torch.randperm(len(x))[: len(x) // 2]
        model = trained(network(0.0), x[half], y[half]).eval()
        rows.append(model(people).squeeze(1).detach())
    return torch.stack(rows)


def of_dropout(x: Tensor, y: Tensor, people: Tensor) -> Tensor:
    """Outputs for everybody from one network, other units left out in each row."""
    model = trained(network(0.3), x, y).train()  # dropout stays on
    rows = [model(people).squeeze(1).detach() for _ in range(DRAWS)]
    return torch.stack(rows)


def shared(outputs: Tensor, edge_index: Tensor) -> float:
    """Correlation of the deviations of neighbours, which independence has at zero."""
    apart = outputs - outputs.mean(0)
    row, col = edge_index
    return float((apart[:, row] * apart[:, col]).mean() / apart.square().mean())


def main() -> None:
    """Trains, smooths with and without deviations, and shows who was moved."""
    torch.manual_seed(0)
    x = torch.randn(NUM_PEOPLE + NUM_NEW, NUM_FEATURES)
    noisy = 2.0 * x[:, 0] + x[:, 1] * x[:, 2] + 0.5 * torch.randn(len(x))
    train, known, new = slice(0, 300), slice(300, NUM_PEOPLE), slice(NUM_PEOPLE, None)
    options = {"target_degree": 12, "lam": 0.1}

    for name, predict in (("ensemble", of_ensemble), ("dropout", of_dropout)):
        outputs = predict(x[train], noisy[train], x)
        y_hat, std = outputs.mean(0), outputs.std(0).clamp(min=0.05)
        # Variances of one on average, so that 'lam' means much the same in both fits.
        unit = std[known].square().mean().sqrt()
        y_std = std / unit
        plain = GLIFPostProcessor(**options).fit(x[known], y_hat[known])
        post = GLIFPostProcessor(**options)
        post.fit(x[known], y_hat[known], y_std=y_std[known])
        fair = plain.transform(x[new], y_hat[new])
        info = post.transform_info(x[new], y_hat[new], y_std=y_std[new], with_std=True)
        careful, spread = info.value, info.uncertainty.std
        third = std[new].argsort().chunk(3)
        print(
            f"{name:<12} {'deviation':>9} {'moved':>7} {'with y_std':>10} {'error':>7}"
        )
        for words, rows in (("known well", third[0]), ("known badly", third[2])):
            moved = [
                float((one - y_hat[new])[rows].abs().mean()) for one in (fair, careful)
            ]
            before, after = std[new][rows].mean(), (spread * unit)[rows].mean()
            print(
                f"{words:<12} {before:9.3f} {moved[0]:7.3f} "
                f"{moved[1]:10.3f} {after:7.3f}"
            )
        alike = shared(outputs[:, known], post.similarity_.edge_index)
        print(f"deviations of neighbours correlate by {alike:.2f}\n")
    print("Moved: mean change of newcomers' outputs. Error: standard error afterwards,")
    print(
        "if errors are independent; the more they correlate, the more it is too small."
    )


if __name__ == "__main__":
    main()
