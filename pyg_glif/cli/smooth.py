"""``pyg-glif smooth``: fair outputs from a file."""

import argparse
import math
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyg_glif.cli._distributed import ENGINE, check as check_engine, run_in_blocks
from pyg_glif.cli._options import (
    DECISION,
    LINK,
    METRIC,
    NEAREST,
    NON_NEGATIVE,
    PEOPLE,
    RADIUS,
    REPORT,
    WEIGHTS,
    Options,
    Outcome,
    UsageError,
    add,
    add_files,
    add_radius,
    aligned,
    check_metric,
    check_radius,
    given,
    keywords,
    name_of,
    note,
    progress,
    short,
)

if TYPE_CHECKING:
    from torch import Tensor

    from pyg_glif.cli._dataset import People
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
  husband and wife count as one, an audit beside the result:
    pyg-glif smooth people.csv --outputs score --sensitive sex --id name \\
        --equivalent relationship=Husband/Wife --out fair.csv --audit report.html
  two arrays, a radius of your own, probabilities averaged as log-odds:
    pyg-glif smooth x.npy y.npy --tau 0.5 --lam 0.3 --link logit --out y_fair.npy
  keep the fit, and correct those who come later one by one:
    pyg-glif smooth people.csv --outputs score --out fair.csv --save fit.safetensors
    pyg-glif smooth new.csv --post fit.safetensors --out new_fair.csv
  a pipe, and a file as some spreadsheets write it:
    cat people.csv | pyg-glif smooth - --outputs score --sensitive sex > fair.csv
    pyg-glif smooth people.csv --outputs score --decimal , --dates dmy --encoding cp1252
  more people than memory holds, on a cluster:
    pyg-glif smooth rows/ scores/ --features emb --id id --tau 0.3 --lam 10 \\
        --engine ray --address 10.0.0.1:6379 --out fair
"""
_STRENGTH: Options = {
    "--lam": {"type": NON_NEGATIVE, "help": "strength; 0 changes nothing (default: 1)"}
}
# Options of a fit, which one that was kept brings along.
_FIT = (
    *RADIUS,
    *NEAREST,
    "--lam",
    "--scale",
    "--standardize",
    "--equivalent",
    "--categories",
    *METRIC,
    *WEIGHTS,
    *LINK,
    "--audit",
    "--save",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command."""
    add_files(parser)
    parser.add_argument(
        "--out",
        metavar="FILE",
        help="fair outputs, by suffix as DATA, or - for standard output (default: "
        "DATA's name with _fair, here; standard output if DATA is standard input)",
    )
    parser.add_argument(
        "--spreadsheet",
        action="store_true",
        help="put an apostrophe before texts that a spreadsheet would run as formulas "
        "(.csv, .tsv)",
    )
    parser.add_argument(
        "--audit", metavar="FILE", help="before and after: .md, .html or .json"
    )
    parser.add_argument(
        "--save",
        metavar="FILE",
        help="keep the fit for newcomers and letters: .safetensors, which holds "
        "features, outputs and ids of these people",
    )
    parser.add_argument(
        "--post", metavar="FILE", help="correct newcomers by a fit that was kept"
    )
    parser.add_argument(
        "--joint",
        action="store_true",
        help="newcomers are each other's neighbours too (with --post)",
    )
    add(parser, "columns", PEOPLE)
    add(parser, "similarity", METRIC)
    add_radius(parser)
    add(parser, "smoothing", _STRENGTH, WEIGHTS, LINK)
    add(parser, "audit", DECISION, REPORT)
    add(parser, "many people", ENGINE)


def run(args: argparse.Namespace) -> Outcome:
    """Fits and writes, or corrects newcomers and writes."""
    check_engine(args)
    if args.engine is not None:
        return run_in_blocks(args)
    from pyg_glif.cli._dataset import check_inputs, input_files
    from pyg_glif.cli._files import check_targets
    from pyg_glif.cli._tables import STREAM, SUFFIXES as TABLES, suffix_of
    from pyg_glif.cli.audit import REPORTS

    check_inputs(args)
    if args.out is None and args.data == STREAM:
        args.out = STREAM
    elif args.out is None:
        name, suffix = Path(args.data).name, suffix_of(args.data)
        args.out = f"{name.removesuffix(name[len(name) - len(suffix) :])}_fair{suffix}"
    _check_options(args)
    targets = {
        "--out": (None if args.out == STREAM else args.out, TABLES),
        "--audit": (args.audit, REPORTS),
        "--save": (args.save, (".safetensors",)),
    }
    check_targets(targets, input_files(args))
    data, people, table = _correct(args) if args.post else _fit(args)
    written = {"out": args.out, "audit": args.audit, "save": args.save}
    files = {name: path for name, path in written.items() if path}
    shown = [name for name in data if name != "unit"]
    rows = [(name.replace("_", " "), _shown(name, data)) for name in shown]
    text = aligned([*rows, *(("written", path) for path in files.values())])
    if people.table is not None:
        scales = people.table.summary(people.frame[people.features])
        text = f"{text}\n\n{scales}"
        data["table"] = scales.to_frame().to_dict("records")
    return Outcome(text, {"command": "smooth", **data, "files": files}, table)


def _shown(name: str, data: dict[str, Any]) -> Any:
    """A fact as text: names in a row, a radius with its unit."""
    value = data[name]
    if name == "tau":
        unit = data.get("unit", "")
        unit = "of the output" if unit == "output" else unit
        return f"{short(value)} {unit}".rstrip()
    return ", ".join(value) if isinstance(value, list) else value


def _check_options(args: argparse.Namespace) -> None:
    """Raises on options that do not go together."""
    if args.post:
        for flag in given(args, _FIT):
            msg = f"{flag} does not go with --post, which brings its own settings"
            remedy = ". Use 'pyg-glif audit --after'" if flag == "--audit" else ""
            raise UsageError(f"{msg}{remedy}")
    elif args.joint:
        raise UsageError("--joint goes with --post")
    if args.out == "-" and args.json:
        raise UsageError("--json does not go with --out -: both are standard output")
    if args.id and args.out.lower().endswith(".npy"):
        raise UsageError("--id does not fit into .npy. Let --out be .csv or .npz")
    if args.spreadsheet and not _is_text(args.out):
        raise UsageError(f"--spreadsheet goes with .csv and .tsv (got '{args.out}')")
    check_metric(args)
    check_radius(args)
    if given(args, LINK):
        from pyg_glif.cli._similarity import link

        link(args)


def _is_text(out: str) -> bool:
    """Whether a result is written as text that a spreadsheet can open."""
    return out == "-" or out.lower().endswith((".csv", ".tsv"))


def _fit(args: argparse.Namespace) -> "tuple[dict[str, Any], People, bytes | None]":
    """Smooths everybody together."""
    from pyg_glif.cli._dataset import read_people

    people = read_people(args)
    people.named(people.y)  # says now what could not be written later

    from pyg_glif.cli._similarity import fair_distance, link, neighbours
    from pyg_glif.cli.audit import audit_options, completed, write_report
    from pyg_glif.postprocessing import GLIFPostProcessor

    post = GLIFPostProcessor(
        distance=fair_distance(args, people),
        link=link(args),
        progress=progress(args),
        **neighbours(args, people),
        **keywords(args, "--lam", *WEIGHTS),
    )
    post.fit(people.x, people.y)
    report = None
    if args.audit:
        report = post.audit(**audit_options(args, people))
        report = completed(report, args, people, post.y_fair_)
    table = _write(args, people, post.y_fair_)
    if report is not None:
        write_report(args.audit, report)
    if args.save:
        _describe(post, people)
        post.save(args.save, metadata=people.kept())
    return _facts(people, post, args.metric), people, table


def _describe(post: "GLIFPostProcessor", people: "People") -> None:
    """Keeps what people are like and what they are called, for letters."""
    frame, ids = people.described(), people.first_ids()
    if ids is not None and len(set(ids)) < len(ids):
        ids = None  # several rows of one person: they go by number
    if frame is not None:
        post.describe(frame[people.features], ids=ids, table=people.table)


def _correct(
    args: argparse.Namespace,
) -> "tuple[dict[str, Any], People, bytes | None]":
    """Corrects newcomers against a fit."""
    from pyg_glif.cli._dataset import read_people

    post, saved = load_fit(args, "--post")
    people = read_people(args, saved)
    people.named(people.y)
    with warnings.catch_warnings():
        # Columns were read by the names of the fit, and are in their order.
        warnings.filterwarnings("ignore", message=".*taken by position")
        info = post.transform_info(people.x, people.y, joint=args.joint)
        found = info.value
    table = _write(args, people, found)
    data = {
        "people": len(people),
        "fitted_people": len(post.y_fair_),
        "columns": people.features,
        **_radius(people, post),
        "lam": float(post.lam),
        "neighbours_each": float(info.num_neighbors.double().mean()),
        "people_without_neighbours": info.num_isolated,
        **_movement(people.y, found),
    }
    return data, people, table


def _write(args: argparse.Namespace, people: "People", y: "Tensor") -> bytes | None:
    """Writes ids and outputs, and says which of them a spreadsheet would run.

    Returns what goes to standard output instead, if anything does. Ids are what results
    are joined by, so they change only if that is asked for.
    """
    from pyg_glif.cli._files import csv_text, formulas, without_formulas, write_table
    from pyg_glif.cli._tables import Reading

    columns = people.named(y)
    if args.spreadsheet:
        columns = without_formulas(columns)
    elif _is_text(args.out):
        for name, count in formulas(columns).items():
            texts = "1 text" if count == 1 else f"{count} texts"
            msg = f"column '{name}' of '{args.out}' has {texts} that a"
            note(args, f"{msg} spreadsheet would run as a formula (see --spreadsheet)")
    if args.out == "-":
        return csv_text(columns, Reading.of(args))
    write_table(args.out, columns, Reading.of(args))
    return None


def _facts(people: "People", post: "GLIFPostProcessor", metric: str) -> dict[str, Any]:
    """What was done, and the evidence for it."""
    from pyg_glif.metrics import laplacian_energy

    graph, solution = post.similarity_, post.solution_
    lap = graph.laplacian(post.theta)
    energy = [float(laplacian_energy(y, lap)) for y in (people.y, post.y_fair_)]
    return {
        "people": len(people),
        "features": len(people.features),
        "columns": people.features,
        "outputs": people.outputs if len(people.outputs) > 1 else people.outputs[0],
        "metric": metric,
        "scale": people.scale,
        **_radius(people, post),
        "lam": float(post.lam),
        "neighbours_each": graph.num_edges / len(people),
        "people_without_neighbours": post.num_isolated_,
        **_movement(people.y, post.y_fair_),
        "energy_before": energy[0],
        "energy_after": energy[1],
        "status": solution.status.name,
        "error_bound": float(solution.error_bound.max()),
    }


def _radius(people: "People", post: "GLIFPostProcessor") -> dict[str, Any]:
    """How near is near enough, and in which unit."""
    found: dict[str, Any] = {} if post.k is None else {"k": post.k}
    if math.isfinite(post.tau_):
        found["tau"] = post.tau_
    return found if people.table is None else {**found, "unit": people.table.unit_}


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
