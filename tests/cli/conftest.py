from pathlib import Path

import pytest

from tests.cli.calls import Shell, Table, people


@pytest.fixture
def shell(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Shell:
    """Calls in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return Shell(capsys)


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """The people of ``people.csv``."""
    found = people()
    found.write(tmp_path / "people.csv")
    return found
