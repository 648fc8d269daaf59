import socket
from pathlib import Path

import pytest

from pyg_glif.cli import main


def fails(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    """The message of a call that ends with code 2."""
    assert main(["serve", *map(str, words)]) == 2
    return capsys.readouterr().err.removeprefix("pyg-glif: error: ").strip()


def test_other_addresses_need_a_token(
    fit: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYG_GLIF_TOKEN", raising=False)
    assert fails(capsys, fit, "--host", "0.0.0.0") == (
        "--host 0.0.0.0 lets other machines ask, so --token must be given, or the "
        "variable PYG_GLIF_TOKEN be set"
    )
    message = fails(capsys, fit, "--host", "0.0.0.0", "--token", "short")
    assert message.startswith("'token' must have at least 16 characters (got 5)")


def test_bad_options(
    fit: Path,
    table: tuple[Path, Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    people, kept = table
    assert fails(capsys, tmp_path / "none") == f"'{tmp_path / 'none'}' does not exist"
    assert fails(capsys, fit, "--id", "name") == "--id goes with --people"
    assert (
        fails(capsys, fit, "--port", "70000")
        == "argument --port: must be a whole number from 0 to 65535 (got '70000'). See "
        "'pyg-glif serve --help'"
    )
    message = fails(capsys, kept, "--people", people, "--id", "nam")
    assert message.endswith("Did you mean 'name'?")
    message = fails(capsys, fit, "--people", people)
    assert "must have one entry per fitted person (got 90 for 80)" in message


def test_people_of_another_fit_are_refused(
    table: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    head, first, second, *rest = table[0].read_text().splitlines()
    other = tmp_path / "people.csv"
    other.write_text("\n".join([head, second, first, *rest]))
    assert fails(capsys, table[1], "--people", other) == (
        f"'{other}' must hold the people of the fit, row by row (row 0 has another "
        "output)"
    )


def test_a_port_that_is_taken_is_an_error_of_one_line(
    capsys: pytest.CaptureFixture[str], fit: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        message = fails(capsys, fit, "--port", str(port))
    assert message.startswith(f"--host and --port must be free (got 127.0.0.1:{port}, ")
