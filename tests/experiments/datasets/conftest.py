import pytest

from tests.experiments.datasets.laws import FakeEncoder


@pytest.fixture
def encoder(monkeypatch: pytest.MonkeyPatch) -> FakeEncoder:
    """Replaces the encoder of texts by numbers made of their hash."""
    fake = FakeEncoder()
    monkeypatch.setattr("experiments.datasets._counterfactual.encode", fake)
    return fake
