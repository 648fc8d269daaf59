"""The work of ``pyg-glif smooth``."""

import argparse
import warnings
from typing import Any

from pyg_glif.cli import settings
from pyg_glif.cli.labels import attribute_codes, codes
from pyg_glif.cli.metric import fair_distance
from pyg_glif.cli.people import People, read_people
from pyg_glif.cli.report import complete, nearest, write_report
from pyg_glif.cli.saved import load, save
from pyg_glif.cli.settings import movement
from pyg_glif.cli.tables import write_table
from pyg_glif.laplacian import LaplacianOperator
from pyg_glif.metrics import laplacian_energy
from pyg_glif.postprocessor import AuditReport, GLIFPostProcessor


def fit(args: argparse.Namespace) -> dict[str, Any]:
    """Smooths everybody together."""
    chosen = settings.link(args)
    people = read_people(args)
    distance = fair_distance(args, people)
    post = GLIFPostProcessor(
        distance=distance,
        tau=settings.radius(args, people.x, distance),
        theta=settings.decay(args),
        lam=settings.strength(args),
        normalization=settings.form(args),
        link=chosen,
    )
    post.fit(people.x, people.y)
    audit = _audit(args, people, post) if args.audit else None
    write_table(args.out, people.named(post.y_fair_))
    if audit is not None:
        write_report(args.audit, audit)
    if args.save:
        save(args.save, post, people)
    return _facts(people, post, args.metric)


def _audit(
    args: argparse.Namespace, people: People, post: GLIFPostProcessor
) -> AuditReport:
    """The report of a fit."""
    found = post.audit(
        attributes=attribute_codes(people),
        groups=None if people.group is None else codes(people.group),
        threshold=args.threshold,
        k=nearest(args, len(people)),
        num_worst=args.worst,
    )
    return complete(found, args, people, post.y_fair_)


def _facts(people: People, post: GLIFPostProcessor, metric: str) -> dict[str, Any]:
    """What was done, and the evidence for it."""
    graph, solution = post.graph_, post.solution_
    lap = LaplacianOperator(graph.edge_index, graph.edge_weight, len(people))
    energy = [float(laplacian_energy(y, lap)) for y in (people.y, post.y_fair_)]
    return {
        "people": len(people),
        "features": len(people.features),
        "outputs": people.outputs if len(people.outputs) > 1 else people.outputs[0],
        "metric": metric,
        "tau": post.tau_,
        "lam": float(post.lam),
        "neighbours_each": graph.edge_index.size(1) / len(people),
        "people_without_neighbours": post.num_isolated_,
        **movement(people.y, post.y_fair_),
        "energy_before": energy[0],
        "energy_after": energy[1],
        "status": solution.status.name,
        "error_bound": float(solution.error_bound.max()),
    }


def correct(args: argparse.Namespace) -> dict[str, Any]:
    """Corrects newcomers against a fit."""
    post, saved = load(args.post)
    people = read_people(args, saved)
    with warnings.catch_warnings():
        # Columns were read by the names of the fit, and are in their order.
        warnings.filterwarnings("ignore", message=".*taken by position")
        found, info = post.transform(
            people.x, people.y, joint=args.joint, return_info=True
        )
    write_table(args.out, people.named(found))
    return {
        "people": len(people),
        "fitted_people": len(post.y_fair_),
        "tau": post.tau_,
        "lam": float(post.lam),
        "neighbours_each": float(info.num_neighbors.double().mean()),
        "people_without_neighbours": info.num_isolated,
        **movement(people.y, found),
    }
