"""Fits on disk, with the names of the columns they were made of."""

from pathlib import Path

from pyg_glif.cli.base import UsageError
from pyg_glif.cli.people import People
from pyg_glif.postprocessor import GLIFPostProcessor


def save(path: str, post: GLIFPostProcessor, people: People) -> None:
    """Writes a fit and its columns, so that newcomers come in any order."""
    columns = {"features": people.features, "outputs": people.outputs}
    post.save(path, metadata={"columns": columns})


def load(path: str) -> tuple[GLIFPostProcessor, dict[str, list[str]]]:
    """A fit and its columns, as far as whoever fitted it named them."""
    if not Path(path).is_file():
        raise UsageError(f"--post: '{path}' does not exist")
    post = GLIFPostProcessor.load(path)
    columns = {
        name: getattr(post, attribute).tolist()
        for name, attribute in (
            ("features", "feature_names_in_"),
            ("outputs", "output_names_"),
        )
        if hasattr(post, attribute)
    }
    return post, post.metadata_.get("columns", columns)
