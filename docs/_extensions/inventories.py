"""Inventories for intersphinx of the names that these pages use, and of no others.

Whole inventories would have to be fetched at every build, which then fails where there
is no network. A name that is missing here is shown without a link.
"""

import zlib
from pathlib import Path

HOME = "{0}.html#{0}"  # a page for each name
BUILTINS = "library/functions.html#{0}"
TYPES = "library/stdtypes.html#{0}"
CONSTANTS = "library/constants.html#{0}"
ERRORS = "library/exceptions.html#{0}"
TERMS = "glossary.html#term-{0}"

#: By project: address, and by place the names that are there. A name after ``=`` is the
#: one of the page, if ours are shorter or longer.
PROJECTS: dict[str, tuple[str, dict[str, str]]] = {
    "python": (
        "https://docs.python.org/3",
        {
            BUILTINS: "bool float int object callable",
            TYPES: "dict list set str tuple bytes",
            CONSTANTS: "None True False",
            ERRORS: "ValueError TypeError RuntimeError ImportError UserWarning",
            TERMS: "sequence iterable",
            "library/typing.html#{0}": "typing.NamedTuple typing.Literal",
            "library/abc.html#{0}": "abc.ABC",
            "library/pathlib.html#{0}": "pathlib.Path Path=pathlib.Path",
            "library/os.html#{0}": "os.PathLike PathLike=os.PathLike",
            "library/collections.abc.html#{0}": (
                "collections.abc.Mapping Mapping=collections.abc.Mapping"
            ),
        },
    ),
    "torch": (
        "https://docs.pytorch.org/docs/stable",
        {
            "tensors.html#{0}": "torch.Tensor Tensor=torch.Tensor",
            "tensor_attributes.html#{0}": "torch.device torch.dtype",
            f"generated/{HOME}": (
                "torch.Generator torch.nn.Module "
                "torch.nn.modules.module.Module=torch.nn.Module"
            ),
        },
    ),
    "torch_geometric": (
        "https://pytorch-geometric.readthedocs.io/en/latest",
        {
            f"generated/{HOME}": (
                "torch_geometric.data.Data torch_geometric.data.Batch "
                "torch_geometric.data.InMemoryDataset "
                "torch_geometric.transforms.BaseTransform "
                "torch_geometric.transforms.base_transform.BaseTransform="
                "torch_geometric.transforms.BaseTransform "
                "torch_geometric.nn.conv.MessagePassing "
                "torch_geometric.nn.conv.message_passing.MessagePassing="
                "torch_geometric.nn.conv.MessagePassing"
            ),
        },
    ),
    "numpy": (
        "https://numpy.org/doc/stable",
        {
            f"reference/generated/{HOME}": "numpy.ndarray",
            "reference/random/legacy.html#{0}": (
                "numpy.random.RandomState RandomState=numpy.random.RandomState"
            ),
        },
    ),
    "pandas": (
        "https://pandas.pydata.org/docs",
        {
            f"reference/api/{HOME}": (
                "pandas.DataFrame DataFrame=pandas.DataFrame "
                "pandas.Series Series=pandas.Series"
            ),
        },
    ),
    "scikit-learn": (
        "https://scikit-learn.org/stable",
        {
            f"modules/generated/{HOME}": (
                "sklearn.base.BaseEstimator sklearn.base.ClassifierMixin "
                "sklearn.base.RegressorMixin sklearn.base.MetaEstimatorMixin"
            ),
        },
    ),
}


def write(folder: Path) -> dict[str, tuple[str, str]]:
    """Writes a file for each project; returns what intersphinx wants to know."""
    folder.mkdir(parents=True, exist_ok=True)
    mapping = {}
    for project, (url, places) in PROJECTS.items():
        lines = []
        for place, names in places.items():
            for name in names.split():
                ours, _, theirs = name.partition("=")
                role = "data" if place == CONSTANTS else "class"
                lines.append(f"{ours} py:{role} 1 {place.format(theirs or ours)} -\n")
        head = f"# Sphinx inventory version 2\n# Project: {project}\n# Version: \n"
        head += "# The remainder of this file is compressed using zlib.\n"
        path = folder / f"{project}.inv"
        path.write_bytes(head.encode() + zlib.compress("".join(lines).encode()))
        mapping[project] = (url, str(path))
    return mapping
