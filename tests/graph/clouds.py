"""Points that searches are tried on, from ordinary to extreme."""

import torch

#: Kinds of :func:`cloud`.
KINDS = ["ordinary", "duplicates", "far", "clusters", "grid", "tiny", "huge"]


def cloud(kind, num_nodes, num_features, dtype, seed, copies=3):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(num_nodes, num_features, generator=generator, dtype=dtype)
    if kind == "duplicates":
        pick = torch.randint(
            max(1, num_nodes // copies), (num_nodes,), generator=generator
        )
        return x[pick]
    if kind == "far":
        return x + 1e4
    if kind == "clusters":
        center = torch.randint(3, (num_nodes, 1), generator=generator)
        return 1e-3 * x + 100.0 * center
    if kind == "grid":
        size = (num_nodes, num_features)
        return torch.randint(3, size, generator=generator).to(dtype)
    return x * {"tiny": 1e-25, "huge": 1e25}.get(kind, 1.0)
