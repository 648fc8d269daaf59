"""Published settings, as the paper prints them."""

from pyg_glif.experiments import paper


def test_grids() -> None:
    assert len(paper.SQ_TAUS) == 151
    assert (min(paper.SQ_TAUS), max(paper.SQ_TAUS)) == (0.1, 100.0)
    assert len(paper.LAMS) == 9
    assert 2.25 in paper.LIPSCHITZ
