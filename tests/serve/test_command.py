import argparse
import asyncio
import logging
from pathlib import Path

import pandas
import pytest

from pyg_glif import GLIFPostProcessor
from pyg_glif.cli import main
from pyg_glif.cli.serve import add_arguments, read_metadata
from pyg_glif.serve import SampleMetadata, create_app


def fails(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    """The message of a call that ends with code 2."""
    assert main(["serve", *map(str, words)]) == 2
    return capsys.readouterr().err.removeprefix("pyg-glif: error: ").strip()


def parser() -> argparse.ArgumentParser:
    """The options of the command."""
    found = argparse.ArgumentParser()
    add_arguments(found)
    return found


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
    assert "must have one entry per fitted sample (got 90 for 80)" in message


def test_samples_of_another_fit_are_refused(
    table: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    head, first, second, *rest = table[0].read_text().splitlines()
    other = tmp_path / "people.csv"
    other.write_text("\n".join([head, second, first, *rest]))
    assert fails(capsys, table[1], "--people", other) == (
        f"'{other}' must hold the people of the fit, row by row (row 0 has another "
        "output)"
    )


SECRET = "S3cret"


def _spoiled(table: Path, kind: str) -> bytes:
    """The file of samples with a secret in a cell that does not belong there."""
    people = pandas.read_csv(table, dtype=object)
    columns = {"output": "score", "feature": "age", "id": "name", "group": "sex"}
    if kind in columns:
        people.loc[[3, 5], columns[kind]] = SECRET  # an id twice, too
    if kind == "outputs":
        people["score"] = SECRET
    text = people.to_csv(index=False)
    if kind == "cells":
        text = text.replace("\n", f",{SECRET}\n", 5)
    if kind == "nul":
        text += f"{SECRET}\0,a,1,b,0.5\n"
    return text.encode() + (SECRET.encode() + b"\xff" if kind == "bytes" else b"")


@pytest.mark.parametrize(
    "kind",
    ["output", "outputs", "feature", "id", "group", "cells", "nul", "bytes", "row"],
)
def test_a_refused_file_of_metadata_is_not_quoted(
    table: tuple[Path, Path],
    tmp_path: Path,
    kind: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    people = tmp_path / "people.csv"
    people.write_bytes(table[0].read_bytes())
    words = ["--people", str(people), "--id", "name", "--attributes", "sex"]
    args = parser().parse_args([str(table[1]), *words])

    def read(post: GLIFPostProcessor) -> SampleMetadata:
        return read_metadata(args, post)

    app = create_app(table[1], metadata=read, watch=[people])
    content = _spoiled(table[0], kind)
    if kind == "row":
        content += f"{SECRET},f,30,clerk,0.5\n".encode()
    people.write_bytes(content)
    with caplog.at_level(logging.DEBUG):
        asyncio.run(app.state.service._take())
    told = f"{app.state.service.reload_error} {caplog.text}"
    assert SECRET not in told
    where = {
        "output": "column 'score' in line 5",
        "outputs": "(row 0 has no number in 'score')",
        "row": "(got 91 for 90)",
    }
    assert where.get(kind, "") in told


def test_messages_of_unknown_errors_are_not_logged(
    fit: Path, caplog: pytest.LogCaptureFixture
) -> None:
    answers = iter([SampleMetadata()])

    def metadata(post: GLIFPostProcessor) -> SampleMetadata:
        for one in answers:
            return one
        raise KeyError(SECRET)

    state = create_app(fit, metadata=metadata).state.service
    asyncio.run(state._take())
    assert state.reload_error == "KeyError"
    assert "KeyError" in caplog.text
    assert SECRET not in caplog.text
