from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from pyg_glif.serve import create_app
from tests.serve.samples import Numbers, numbers, write_table

HERE = "http://127.0.0.1"
# A service sees to that itself when it starts, and pytest undoes it before every test.
QUIET = [
    pytest.mark.filterwarnings("ignore::pyg_glif.errors.SimilarityWarning"),
    pytest.mark.filterwarnings("ignore:.*taken by position"),
    pytest.mark.filterwarnings("ignore:.*the fit has not seen"),
]


@pytest.fixture(scope="session")
def known() -> Numbers:
    """Samples of numbers."""
    return numbers()


@pytest.fixture(scope="session")
def fit(known: Numbers, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of their fit, which is never changed."""
    path = tmp_path_factory.mktemp("numbers") / "fit.safetensors"
    known.save(path)
    return path


@pytest.fixture(scope="session")
def table(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A table of samples, and the file of their fit."""
    return write_table(tmp_path_factory.mktemp("table"))


@pytest.fixture(scope="session")
def client(fit: Path) -> Iterator[TestClient]:
    """A service without a token, as a program on the same machine sees it; exact."""
    app = create_app(fit, min_shared=1, resolution=0.0)
    with TestClient(app, base_url=HERE) as found:
        yield found


@pytest.fixture(scope="session")
def table_client(table: tuple[Path, Path]) -> Iterator[TestClient]:
    """The service of a table."""
    app = create_app(table[1], min_shared=1, resolution=0.0)
    with TestClient(app, base_url=HERE) as found:
        yield found
