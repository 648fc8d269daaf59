"""inFairness as an outside oracle, where it is right."""

import pytest
import torch

from pyg_glif import edge_weights, fair_radius_graph, glif_smooth


@pytest.mark.filterwarnings("ignore")  # it uses what torch has deprecated
@pytest.mark.parametrize(("normalization", "normalize"), [(None, False), ("nrw", True)])
def test_glif_smooth_agrees_with_infairness(normalization, normalize, generator):
    distances = pytest.importorskip("inFairness.distances")
    processing = pytest.importorskip("inFairness.postprocessing")
    x = torch.randn(60, 4, generator=generator)
    y_hat = torch.randn(60, 3, generator=generator)
    tau, theta, lam = 1.7, 0.3, 0.2
    distance = distances.SquaredEuclideanDistance()
    distance.fit(num_dims=4)
    model = processing.GraphLaplacianIF(distance, is_output_probas=False)
    model.add_datapoints(x, y_hat)
    other = model.postprocess(
        "exact",
        lambda_param=lam,
        scale=theta,
        threshold=tau,
        normalize=normalize,
    ).y_solution
    # It takes the root of what this distance returns, so its threshold is a distance.
    edge_index, sq_dist = fair_radius_graph(x, tau)
    assert 60 < edge_index.size(1) < 60 * 40
    weight = edge_weights(sq_dist, theta)
    if normalization == "nrw":
        # It does not multiply by the average degree, which the authors' scripts do.
        degree = torch.zeros(60).index_add_(0, edge_index[0], weight) + 1.0
        lam = lam / float(degree.mean())
    ours = glif_smooth(y_hat, edge_index, weight, lam=lam, normalization=normalization)
    torch.testing.assert_close(ours, other, atol=2e-5, rtol=0)
