"""``pyg-glif smooth --engine``: people in blocks on disk, here or on Ray."""

import argparse
import os
from typing import Any

from pyg_glif.cli._options import (
    COUNT,
    DECISION,
    METRIC,
    NEAREST,
    PEOPLE,
    READING,
    REPORT,
    WEIGHTS,
    Options,
    Outcome,
    UsageError,
    aligned,
    given,
    keywords,
    note,
    progress,
)

ENGINE: Options = {
    "--engine": {
        "choices": ["process", "ray"],
        "help": "keep people in blocks on disk, as many as it holds: DATA and OUTPUTS "
        "are folders of .parquet files, or names with * in quotes, --out is a folder. "
        "process: block by block here; ray: on a Ray cluster",
    },
    "--address": {
        "metavar": "HOST:PORT",
        "help": "the Ray cluster (default: a new one on this machine)",
    },
    "--workers": {
        "type": COUNT,
        "metavar": "N",
        "help": "tasks at a time on Ray (default: the cores of the cluster)",
    },
}
_ALLOWED = ("--features", "--outputs", "--id")
_REFUSED = (
    *(flag for flag in PEOPLE if flag not in _ALLOWED),
    *METRIC,
    *NEAREST,
    "--coverage",
    *DECISION,
    *REPORT,
    *READING,
    "--audit",
    "--save",
    "--post",
    "--joint",
    "--spreadsheet",
)
_DEGREE = 20.0


def check(args: argparse.Namespace) -> None:
    """Raises on options that do not go together."""
    if args.engine is None:
        for flag in given(args, ("--address", "--workers")):
            raise UsageError(f"{flag} goes with --engine ray")
        return
    if args.engine != "ray":
        for flag in given(args, ("--address", "--workers")):
            raise UsageError(f"{flag} goes with --engine ray (got {args.engine})")
    for flag in given(args, _REFUSED):
        raise UsageError(f"{flag} does not go with --engine")
    if args.id is not None and len(args.id) > 1:
        raise UsageError(f"--id must be one column with --engine (got {args.id})")


def run_in_blocks(args: argparse.Namespace) -> Outcome:
    """Builds, searches and solves; what is there already is used again."""
    from pyg_glif.cli._similarity import link
    from pyg_glif.distributed import (
        Engine,
        FileColumns,
        InProcess,
        RayEngine,
        ShardedDataset,
        radius_graph,
        smooth,
    )

    engine: Engine = InProcess(progress=progress(args))
    if args.engine == "ray":
        engine = RayEngine(
            args.address, num_workers=args.workers, progress=progress(args)
        )
    out = (args.out or "fair").rstrip("/")
    shared: dict[str, Any] = {"engine": engine}
    rows, scores = _files(args.data), _files(args.outputs_file or args.data)
    id = None if args.id is None else args.id[0]
    if args.outputs_file is None and not (args.outputs and args.features):
        raise UsageError("--features and --outputs must be given without OUTPUTS")
    people = ShardedDataset.build(
        f"{out}/people", rows, features=args.features, id=id, **shared
    )
    tau = args.tau
    if tau is None:
        degree = _DEGREE if args.target_degree is None else args.target_degree
        tau = people.suggest_tau(degree)
        note(args, f"radius {tau:.5g} for about {degree:g} neighbours each")
    graph = radius_graph(people, tau, out=f"{out}/graph", **shared)
    fair = smooth(
        graph,
        FileColumns(scores, args.outputs),
        out=f"{out}/outputs",
        link=link(args),
        **shared,
        **keywords(args, "--lam", *WEIGHTS),
    )
    data = {
        "people": people.num_samples,
        "features": people.num_features,
        "outputs": fair.columns,
        "tau": tau,
        "lam": fair.manifest["lam"],
        "neighbours_each": graph.num_edges / people.num_samples,
        "tasks_run": graph.tasks.run,
        "tasks_reused": graph.tasks.reused,
        "status": fair.status.name,
        "num_iter": fair.num_iter,
        "error_bound": float(fair.error_bound.max()),
    }
    shown = [(name.replace("_", " "), value) for name, value in data.items()]
    shown[2] = ("outputs", ", ".join(fair.columns))
    files = {"out": fair.store.url}
    text = aligned([*shown, ("written", f"{fair.store.url} ({len(fair.files)} files)")])
    return Outcome(text, {"command": "smooth", **data, "files": files})


def _files(path: str) -> str:
    """The files of a folder; anything else as it is."""
    return f"{path.rstrip('/')}/*.parquet" if os.path.isdir(path) else path
