"""Fits on disk, with the names of the columns they were made of."""

import json
from pathlib import Path

from safetensors import safe_open
from safetensors.torch import save_file

from pyg_glif.cli.base import UsageError
from pyg_glif.cli.files import replacing
from pyg_glif.cli.people import People
from pyg_glif.postprocessor import GLIFPostProcessor

_KEY = "pyg_glif.columns"


def save(path: str, post: GLIFPostProcessor, people: People) -> None:
    """Writes a fit, its columns in the header, so that newcomers come in any order."""
    columns = {"features": people.features, "outputs": people.outputs}
    with replacing(Path(path)) as beside:
        post.save(beside)
        with safe_open(beside, framework="pt") as file:
            header = {**file.metadata(), _KEY: json.dumps(columns)}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        save_file(tensors, beside, metadata=header)


def load(path: str) -> tuple[GLIFPostProcessor, dict[str, list[str]]]:
    """A fit and its columns, none if Python code wrote the file."""
    if not Path(path).is_file():
        raise UsageError(f"--post: '{path}' does not exist")
    post = GLIFPostProcessor.load(path)
    with safe_open(path, framework="pt") as file:
        columns: dict[str, list[str]] = json.loads(file.metadata().get(_KEY, "{}"))
    return post, columns
