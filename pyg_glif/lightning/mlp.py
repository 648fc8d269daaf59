"""The network of the paper's experiments."""

from itertools import pairwise

from torch import nn

from pyg_glif._utils.validation import check_count, check_scalar


class MLP(nn.Sequential):
    r"""Linear layers with ReLU in between.

    .. math::
        \mathbf{h}_0 = \mathbf{x}, \qquad
        \mathbf{h}_{k} = \mathrm{ReLU}(\mathbf{W}_k \mathbf{h}_{k-1} + \mathbf{b}_k),
        \qquad \mathbf{y} = \mathbf{W}_K \mathbf{h}_{K-1} + \mathbf{b}_K

    With two layers and 1,000 hidden units it is the sentiment model of `GLIF
    <https://arxiv.org/abs/2110.13796>`_. Unlike :class:`torch_geometric.nn.MLP` it has
    no batch norm, so the output of a row depends on no other row.

    Args:
        in_channels (int): Number of features.
        hidden_channels (int): Units of each hidden layer. (default: :obj:`1000`)
        out_channels (int): Number of outputs. (default: :obj:`2`)
        num_layers (int): Number :math:`K` of linear layers. (default: :obj:`2`)
        dropout (float): Probability with which a hidden unit is dropped in training.
            (default: :obj:`0.0`)

    Shapes:
        - **input:** features :math:`(N, F)`
        - **output:** outputs :math:`(N, C)`

    Example:
        >>> MLP(100, 1000, 2)
        MLP(
          (0): Linear(in_features=100, out_features=1000, bias=True)
          (1): ReLU()
          (2): Linear(in_features=1000, out_features=2, bias=True)
        )
    """

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int = 1000,
        out_channels: int = 2,
        num_layers: int = 2,
        dropout: float = 0.0,
    ) -> None:
        check_count("in_channels", in_channels)
        check_count("hidden_channels", hidden_channels)
        check_count("out_channels", out_channels)
        check_count("num_layers", num_layers)
        check_scalar("dropout", dropout, minimum=0.0, below=1.0)
        widths = [in_channels, *[hidden_channels] * (num_layers - 1), out_channels]
        layers: list[nn.Module] = []
        for width, next_width in pairwise(widths):
            layers += [nn.Linear(width, next_width), nn.ReLU()]
            if dropout > 0:
                layers.append(nn.Dropout(dropout))
        # Nothing follows the last linear layer.
        super().__init__(*layers[: -2 if dropout > 0 else -1])
        self.in_channels = in_channels
        self.out_channels = out_channels
