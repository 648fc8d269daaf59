"""``pyg-glif smooth``: fair outputs from a file."""

import argparse
import math
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyg_glif.cli._options import (
    COLUMNS,
    COUNT,
    DECISION,
    LINK,
    METRIC,
    NON_NEGATIVE,
    RADIUS,
    READING,
    REPORT,
    STREAM,
    SUFFIXES,
    WEIGHTS,
    Options,
    Outcome,
    UsageError,
    add,
    add_files,
    aligned,
    called,
    check_similarity,
    default_of,
    given,
    keywords,
    name_of,
    note,
    progress,
    short,
    suffix_of,
)

if TYPE_CHECKING:
    from torch import Tensor

    from pyg_glif.cli._samples import Samples
    from pyg_glif.postprocessing import GLIFPostProcessor

SUMMARY = "make outputs treat similar people alike, and write them"
DESCRIPTION = """\
Make the outputs of a model treat similar people alike, and change them no more than
that takes. People within the distance tau are similar; lam says how much they pull on
each other. Old files under --out, --audit and --save are replaced.
"""
EPILOG = """\
examples:
  one table, with text and gaps; differences count by their effect on the scores:
    pyg-glif smooth people.csv --outputs score --sensitive sex,race
  an audit beside the result, settings in a file:
    pyg-glif smooth people.csv --outputs score --sensitive sex --id name \\
        --config settings.toml --out fair.csv --audit report.html
  two arrays, a radius of your own, probabilities averaged as log-odds:
    pyg-glif smooth x.npy y.npy --tau 0.5 --lam 0.3 --link logit --out y_fair.npy
  keep the fit, and correct those who come later one by one:
    pyg-glif smooth people.csv --outputs score --out fair.csv --save fit.safetensors
    pyg-glif smooth new.csv --post fit.safetensors --out new_fair.csv
  a pipe, and a file as some spreadsheets write it:
    cat people.csv | pyg-glif smooth - --outputs score --sensitive sex > fair.csv
    pyg-glif smooth people.csv --outputs score --decimal , --encoding cp1252
  more people than memory holds, in blocks on disk:
    pyg-glif smooth rows/ scores/ --features emb --id id --tau 0.3 --lam 10 \\
        --engine process --out fair
"""
_RESULTS: Options = {
    "--out": {
        "metavar": "FILE",
        "help": "fair outputs, by suffix as DATA, or - for standard output (default: "
        "DATA's name with _fair, here; standard output if DATA is standard input)",
    },
    "--audit": {"metavar": "FILE", "help": "before and after: .md, .html or .json"},
    "--save": {
        "metavar": "FILE",
        "help": "keep the fit for new people and explanations: .safetensors, which "
        "holds features, outputs and ids of these people",
    },
    "--post": {"metavar": "FILE", "help": "correct new people by a fit that was kept"},
    "joint": {"action": "store_true"},
    "spreadsheet": {"action": "store_true"},
}
_STRENGTH: Options = {
    "--lam": {"type": NON_NEGATIVE, "help": "strength; 0 changes nothing (default: 1)"}
}
_ENGINE: Options = {
    "--engine": {
        "choices": ["process", "ray"],
        "help": "keep people in blocks on disk, as many as it holds: DATA and OUTPUTS "
        "are folders of .parquet files, or names with * in quotes, --out is a folder. "
        "process: block by block here; ray: on a Ray cluster",
    },
    "address": {},
    "num_workers": {"type": COUNT},
}
_FIT_ONLY = (
    *("--scale", "equivalent", "categories", *METRIC, *RADIUS),
    *("--lam", *WEIGHTS, *LINK, "--audit", "--save"),
)
_NOT_IN_BLOCKS = (
    *(o for o in COLUMNS if o not in ("--features", "--outputs", "--id")),
    *("--coverage", "--k", *METRIC, *DECISION, *REPORT, *READING),
    *("--audit", "--save", "--post", "joint", "spreadsheet"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command."""
    add_files(parser)
    add(parser, "results", _RESULTS)
    add(parser, "columns", COLUMNS)
    add(parser, "similarity", METRIC, RADIUS)
    add(parser, "smoothing", _STRENGTH, WEIGHTS, LINK)
    add(parser, "audit", DECISION, REPORT)
    add(parser, "many people", _ENGINE)


def run(args: argparse.Namespace) -> Outcome:
    """Fits, or corrects new samples by a fit, and writes."""
    _check_engine(args)
    if args.engine is not None:
        return _run_in_blocks(args)
    from pyg_glif.cli._dataset import check_inputs, input_files
    from pyg_glif.cli._files import check_targets
    from pyg_glif.cli.audit import REPORTS

    check_inputs(args)
    if args.out is None and args.data == STREAM:
        args.out = STREAM
    elif args.out is None:
        name, suffix = Path(args.data).name, suffix_of(args.data)
        args.out = f"{name.removesuffix(name[len(name) - len(suffix) :])}_fair{suffix}"
    _check_options(args)
    targets = {
        "--out": (None if args.out == STREAM else args.out, SUFFIXES),
        "--audit": (args.audit, REPORTS),
        "--save": (args.save, (".safetensors",)),
    }
    check_targets(targets, input_files(args))
    data, samples, table = _correct(args) if args.post else _fit(args)
    written = {"out": args.out, "audit": args.audit, "save": args.save}
    files = {name: path for name, path in written.items() if path}
    text = aligned([*_rows(data), *(("written", path) for path in files.values())])
    if samples.table is not None:
        scales = samples.table.summary(samples.frame[samples.features])
        text = f"{text}\n\n{scales}"
        data["table"] = scales.to_frame().to_dict("records")
    return Outcome(text, {"command": "smooth", **data, "files": files}, table)


def _rows(data: dict[str, Any]) -> list[tuple[str, Any]]:
    """Facts as rows of text: names in a row, a radius with its unit."""
    texts = {n: ", ".join(v) if isinstance(v, list) else v for n, v in data.items()}
    unit = texts.pop("unit", "")
    if "tau" in texts:
        unit = "of the output" if unit == "output" else unit
        texts["tau"] = f"{short(texts['tau'])} {unit}".rstrip()
    return [(name.replace("_", " "), text) for name, text in texts.items()]


def _check_options(args: argparse.Namespace) -> None:
    """Raises on options that do not go together."""
    if args.post:
        for option in given(args, _FIT_ONLY):
            msg = f"{called(option)} does not go with --post, which brings its own"
            remedy = ". Use 'pyg-glif audit --after'" if option == "--audit" else ""
            raise UsageError(f"{msg} settings{remedy}")
    elif args.joint:
        raise UsageError(f"{called('joint')} goes with --post")
    if args.out == "-" and args.json:
        raise UsageError("--json does not go with --out -: both are standard output")
    if args.id and args.out.lower().endswith(".npy"):
        raise UsageError("--id does not fit into .npy. Let --out be .csv or .npz")
    if args.spreadsheet and not _is_text(args.out):
        msg = f"{called('spreadsheet')} goes with .csv and .tsv (got '{args.out}')"
        raise UsageError(msg)
    check_similarity(args)
    if given(args, LINK):
        from pyg_glif.cli._similarity import link

        link(args)


def _is_text(out: str) -> bool:
    """Whether a result is written as text that a spreadsheet can open."""
    return out == "-" or out.lower().endswith((".csv", ".tsv"))


def _fit(args: argparse.Namespace) -> "tuple[dict[str, Any], Samples, bytes | None]":
    """Smooths all samples together."""
    from pyg_glif.cli._dataset import read_samples

    samples = read_samples(args)
    samples.named(samples.y)  # says now what could not be written later

    from pyg_glif.cli._similarity import fair_distance, link, neighbor_options
    from pyg_glif.cli.audit import audit_options, completed, write_report
    from pyg_glif.postprocessing import GLIFPostProcessor

    post = GLIFPostProcessor(
        distance=fair_distance(args, samples),
        link=link(args),
        progress=progress(args),
        **neighbor_options(args, samples),
        **keywords(args, "--lam", *WEIGHTS),
    )
    post.fit(samples.x, samples.y)
    report = None
    if args.audit:
        report = post.audit(**audit_options(args, samples))
        report = completed(report, args, samples, post.y_fair_)
    table = _write(args, samples, post.y_fair_)
    if report is not None:
        write_report(args.audit, report)
    if args.save:
        frame, ids = samples.described(), samples.first_ids()
        if ids is not None and len(set(ids)) < len(ids):
            ids = None  # several rows of one id: they go by number
        if frame is not None:
            post.describe(frame[samples.features], ids=ids, table=samples.table)
        post.save(args.save, metadata=samples.metadata())
    return _facts(samples, post, args.metric), samples, table


def _correct(
    args: argparse.Namespace,
) -> "tuple[dict[str, Any], Samples, bytes | None]":
    """Corrects new samples by a fit."""
    from pyg_glif.cli._dataset import read_samples

    post, saved = load_fit(args, "--post")
    samples = read_samples(args, saved)
    samples.named(samples.y)
    info = post.transform_info(samples.x, samples.y, joint=args.joint)
    table = _write(args, samples, info.value)
    data = {
        "people": len(samples),
        "fitted_people": len(post.y_fair_),
        "columns": samples.features,
        **_radius(samples, post),
        "lam": float(post.lam),
        "neighbors_each": float(info.num_neighbors.double().mean()),
        "people_without_neighbors": info.num_isolated,
        **_movement(samples.y, info.value),
    }
    return data, samples, table


def _write(args: argparse.Namespace, samples: "Samples", y: "Tensor") -> bytes | None:
    """Writes ids and outputs; returns the content for standard output, if any.

    Ids are what results are joined by: texts that a spreadsheet would run as formulas
    are noted, and change only if that is asked for.
    """
    from pyg_glif.cli._dtypes import Notation
    from pyg_glif.cli._files import csv_text, formulas, without_formulas, write_table

    columns = samples.named(y)
    if args.spreadsheet:
        columns = without_formulas(columns)
    elif _is_text(args.out):
        for name, count in formulas(columns).items():
            texts = "1 text" if count == 1 else f"{count} texts"
            msg = f"column '{name}' of '{args.out}' has {texts} that a"
            remedy = "see 'spreadsheet' of --config"
            note(args, f"{msg} spreadsheet would run as a formula ({remedy})")
    if args.out == "-":
        return csv_text(columns, Notation.of(args))
    write_table(args.out, columns, Notation.of(args))
    return None


def _facts(
    samples: "Samples", post: "GLIFPostProcessor", metric: str
) -> dict[str, Any]:
    """Settings and results of a fit, with the evidence for them."""
    from pyg_glif.metrics import laplacian_energy

    graph, solution = post.similarity_, post.solution_
    lap = graph.laplacian(post.theta)
    energy = [float(laplacian_energy(y, lap)) for y in (samples.y, post.y_fair_)]
    return {
        "people": len(samples),
        "features": len(samples.features),
        "columns": samples.features,
        "outputs": samples.outputs if len(samples.outputs) > 1 else samples.outputs[0],
        "metric": metric,
        "scale": samples.scale,
        **_radius(samples, post),
        "lam": float(post.lam),
        "neighbors_each": graph.num_edges / len(samples),
        "people_without_neighbors": post.num_isolated_,
        **_movement(samples.y, post.y_fair_),
        "energy_before": energy[0],
        "energy_after": energy[1],
        "status": solution.status.name,
        "error_bound": float(solution.error_bound.max()),
    }


def _radius(samples: "Samples", post: "GLIFPostProcessor") -> dict[str, Any]:
    """The neighbor rule, and the unit of its radius."""
    rule: dict[str, Any] = {} if post.k is None else {"k": post.k}
    if math.isfinite(post.tau_):
        rule["tau"] = post.tau_
    return rule if samples.table is None else {**rule, "unit": samples.table.unit_}


def _movement(before: "Tensor", after: "Tensor") -> dict[str, float]:
    """Mean and largest distance of the outputs before and after."""
    moved = (after - before).double().reshape(len(before), -1).norm(dim=1)
    return {
        "mean_movement": float(moved.mean()),
        "largest_movement": float(moved.max()),
    }


def load_fit(
    args: argparse.Namespace, option: str
) -> "tuple[GLIFPostProcessor, dict[str, Any]]":
    """Loads the fit that an option names, and columns and table saved with it."""
    from pyg_glif.postprocessing import GLIFPostProcessor

    path = getattr(args, name_of(option))
    post = GLIFPostProcessor.load(path, progress=progress(args))
    names = {"features": "feature_names_in_", "outputs": "output_names_"}
    columns = {
        name: getattr(post, attribute).tolist()
        for name, attribute in names.items()
        if hasattr(post, attribute)
    }
    return post, {"columns": columns, **post.metadata_}


def _check_engine(args: argparse.Namespace) -> None:
    """Raises on options that do not go with ``--engine``."""
    if args.engine != "ray":
        for option in given(args, ("address", "num_workers")):
            raise UsageError(f"{called(option)} goes with --engine ray")
    if args.engine is not None:
        for option in given(args, _NOT_IN_BLOCKS):
            raise UsageError(f"{called(option)} does not go with --engine")
        if args.id is not None and len(args.id) > 1:
            raise UsageError(f"--id must be one column with --engine (got {args.id})")
        if args.outputs_file is None and not (args.outputs and args.features):
            raise UsageError("--features and --outputs must be given without OUTPUTS")


def _run_in_blocks(args: argparse.Namespace) -> Outcome:
    """Builds, searches and solves in blocks; finished blocks are used again."""
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
    from pyg_glif.postprocessing import GLIFPostProcessor

    engine: Engine = InProcess(progress=progress(args))
    if args.engine == "ray":
        engine = RayEngine(
            args.address, num_workers=args.num_workers, progress=progress(args)
        )
    out = (args.out or "fair").rstrip("/")
    shared: dict[str, Any] = {"engine": engine}
    rows, scores = _files(args.data), _files(args.outputs_file or args.data)
    id = None if args.id is None else args.id[0]
    samples = ShardedDataset.build(
        f"{out}/people", rows, features=args.features, id=id, **shared
    )
    tau = args.tau
    if tau is None:
        default = float(default_of(GLIFPostProcessor, "target_degree"))
        degree = default if args.target_degree is None else args.target_degree
        tau = samples.suggest_tau(degree)
        note(args, f"radius {tau:.5g} for about {degree:g} neighbors each")
    graph = radius_graph(samples, tau, out=f"{out}/graph", **shared)
    fair = smooth(
        graph,
        FileColumns(scores, args.outputs),
        out=f"{out}/outputs",
        link=link(args),
        **shared,
        **keywords(args, "--lam", *WEIGHTS),
    )
    data = {
        "people": samples.num_samples,
        "features": samples.num_features,
        "outputs": fair.columns,
        "tau": tau,
        "lam": fair.manifest["lam"],
        "neighbors_each": graph.num_edges / samples.num_samples,
        "tasks_run": graph.tasks.run,
        "tasks_reused": graph.tasks.reused,
        "status": fair.status.name,
        "num_iter": fair.num_iter,
        "error_bound": float(fair.error_bound.max()),
    }
    written = f"{fair.store.url} ({len(fair.files)} files)"
    text = aligned([*_rows(data), ("written", written)])
    files = {"out": fair.store.url}
    return Outcome(text, {"command": "smooth", **data, "files": files})


def _files(path: str) -> str:
    """The files of a folder; anything else as it is."""
    return f"{path.rstrip('/')}/*.parquet" if os.path.isdir(path) else path
