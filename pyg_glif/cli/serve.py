"""``pyg-glif serve``: a fit as a service, for programs and for people."""

import argparse
import contextlib
import gc
import logging
import os
import signal
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyg_glif.cli._options import (
    CHANCE,
    COUNT,
    FINITE,
    NON_NEGATIVE,
    PORT,
    READING,
    Options,
    Outcome,
    UsageError,
    add,
    keywords,
    listed,
    names,
    nearest_name,
    note,
)

if TYPE_CHECKING:
    import socket

    from pyg_glif.postprocessing import GLIFPostProcessor
    from pyg_glif.serve import SampleMetadata

SUMMARY = "serve a fit: corrections for programs, pages for people"
DESCRIPTION = """\
Serve a fit that 'smooth --save' or GLIFPostProcessor.save has kept: corrected outputs
for newcomers over HTTP, and pages with the audit, people, what-if and a form. A fit
that is saved to the same file later is taken without dropping a request, as after the
signal HUP. Ctrl-C or the signal TERM ends the service once open requests are answered.
"""
EPILOG = """\
examples:
  for programs and a browser on this machine:
    pyg-glif serve fit.safetensors
  with names, and the groups that audits compare:
    pyg-glif serve fit.safetensors --people people.csv --id name --attributes sex \\
        --show-people
  for other machines, behind a proxy that speaks TLS:
    PYG_GLIF_TOKEN=... pyg-glif serve fit.safetensors --host 0.0.0.0
  ask it:
    curl -H 'Content-Type: application/json' http://127.0.0.1:8000/v1/correct \\
        -d '{"rows": [{"age": 41, "income": 2.5}], "y_hat": [0.62]}'
"""
_TOKEN = "PYG_GLIF_TOKEN"
_LOCAL = ("127.0.0.1", "localhost", "::1")


_SAMPLES: Options = {
    "--people": {
        "metavar": "FILE",
        "help": "columns of the fitted people, row by row as they were fitted; by "
        "suffix as DATA of 'smooth'",
    },
    "--id": {"metavar": "COL", "help": "column that names people"},
    "--attributes": {
        "type": names,
        "action": "extend",
        "metavar": "COLS",
        "help": "protected columns, such as sex, whose groups are compared",
    },
    "--threshold": {
        "type": FINITE,
        "metavar": "T",
        "help": "a single output above it means yes (default: 0.5 where all outputs "
        "are between 0 and 1)",
    },
    "--show-people": {
        "action": "store_true",
        "help": "show ids, features and scores of the fitted people to whoever may "
        "ask, and answer exactly (otherwise see min_shared and resolution of --config)",
    },
    "min_shared": {"type": COUNT},
    "resolution": {"type": NON_NEGATIVE},
}
_MONITOR: Options = {
    "--monitor": {
        "type": CHANCE,
        "metavar": "EPSILON",
        "help": "raise an alarm once served people are found to differ from their "
        "peers by more than this on average; outputs from 0 to 1",
    },
    "--journal": {
        "metavar": "FILE",
        "help": "where the monitor keeps its state over restarts",
    },
}
_NETWORK: Options = {
    "--host": {
        "default": "127.0.0.1",
        "help": "address to listen on (default: 127.0.0.1, this machine alone)",
    },
    "--port": {
        "type": PORT,
        "default": 8000,
        "help": "0 takes a free one (default: 8000)",
    },
    "--token": {
        "metavar": "T",
        "help": "what requests must show, needed for other addresses than this "
        f"machine's (default: the variable {_TOKEN}, which other users cannot see)",
    },
    "--allow-host": {
        "action": "append",
        "metavar": "NAME",
        "help": "without a token, a name by which requests may call this service "
        "beside localhost; may be repeated",
    },
    "--root-path": {
        "default": "",
        "metavar": "PATH",
        "help": "path under which a proxy shows the service, such as /fair",
    },
    "--reload-seconds": {
        "type": NON_NEGATIVE,
        "metavar": "S",
        "help": "how often to look for a newer fit; 0 waits for the signal HUP "
        "(default: 2)",
    },
    "log_requests": {"action": "store_true"},
    "max_rows": {"type": COUNT},
    "max_bytes": {"type": COUNT},
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command."""
    parser.add_argument("fit", metavar="FIT", help="the fit: .safetensors")
    add(parser, "people", _SAMPLES)
    add(parser, "how --people is written", READING)
    add(parser, "monitor", _MONITOR)
    add(parser, "network", _NETWORK)


def run(args: argparse.Namespace) -> Outcome:
    """Serves until a signal stops it."""
    from pyg_glif._utils.optional import require

    uvicorn = require("uvicorn", "pyg-glif serve", "serve")
    token = os.environ.get(_TOKEN) if args.token is None else args.token
    _check(args, token)

    from pyg_glif.serve import create_app
    from pyg_glif.serve.network import config

    limits = ("--reload-seconds", "max_rows", "max_bytes", "min_shared", "resolution")
    options = keywords(args, "--threshold", *limits)
    if args.allow_host:
        options["hosts"] = (*_LOCAL, *args.allow_host)
    monitor = None
    if args.monitor is not None:
        from pyg_glif.monitoring import TreatmentMonitor

        monitor = TreatmentMonitor(args.monitor, journal=args.journal)
    # A port that is taken is an error before the fit is read.
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket) for socket in _bound(args)]
        app = create_app(
            args.fit,
            metadata=(lambda post: read_metadata(args, post)) if args.people else None,
            watch=[args.people] if args.people else [],
            monitor=monitor,
            token=token or None,
            show_people=args.show_people,
            **options,
        )
        level = logging.DEBUG if args.log_requests else logging.INFO
        stack.enter_context(_logging(logging.WARNING if args.quiet else level))
        stack.enter_context(_prompt())
        settings = config(app, root_path=args.root_path)
        _server(uvicorn, settings, app.state.service.reload, args).run(sockets)
    return Outcome("stopped", {"command": "serve", "fit": args.fit})


def _check(args: argparse.Namespace, token: str | None) -> None:
    """Raises on options that do not go together."""
    from pyg_glif.cli._dataset import check_inputs

    check_inputs(args)
    if args.people == "-":
        raise UsageError("--people must be a file, which is read again (got '-')")
    for flag in ("--id", "--attributes"):
        if getattr(args, flag[2:]) and not args.people:
            raise UsageError(f"{flag} goes with --people")
    if args.journal and args.monitor is None:
        raise UsageError("--journal goes with --monitor")
    if args.host not in _LOCAL and not token:
        msg = f"--host {args.host} lets other machines ask, so --token must be given"
        raise UsageError(f"{msg}, or the variable {_TOKEN} be set")


def _bound(args: argparse.Namespace) -> "list[socket.socket]":
    """Sockets to listen on; raises where the address cannot be had."""
    from pyg_glif.serve.network import bound

    try:
        return bound(args.host, args.port)
    except OSError as error:
        msg = f"--port {args.port} of {args.host} must be free to listen on"
        why = error.strerror or str(error)
        remedy = "Name another, or 0 for one that is free"
        raise UsageError(f"{msg} (got '{why}'). {remedy}") from error


@contextlib.contextmanager
def _prompt() -> Iterator[None]:
    """Context in which the process answers without pauses."""
    # Garbage collection over all packages would stop the service for a tenth of a
    # second or two now and then.
    gc.collect()
    gc.freeze()
    before = sys.getswitchinterval()
    # The thread that searches asks for the interpreter some hundred times per search,
    # and would wait this long for the one that answers each time.
    sys.setswitchinterval(1e-4)
    try:
        yield
    finally:
        sys.setswitchinterval(before)
        gc.unfreeze()


def read_metadata(
    args: argparse.Namespace, post: "GLIFPostProcessor"
) -> "SampleMetadata":
    """Metadata of the fitted samples; raises if the file is about others.

    Errors end up in the log of a service, and hold no cell.
    """
    from pyg_glif.cli._dtypes import CellError
    from pyg_glif.serve.sample_metadata import SampleMetadataError

    msg = f"'{args.people}' cannot be read"
    try:
        return _metadata(args, post)
    except (SampleMetadataError, OSError):
        raise
    except CellError as error:
        places = [f"column '{f.column}' in {f.place}" for f in error.faults]
        raise SampleMetadataError(f"{msg} (see {', '.join(places)})") from None
    except Exception as error:
        raise SampleMetadataError(f"{msg} ({type(error).__name__})") from None


def _metadata(args: argparse.Namespace, post: "GLIFPostProcessor") -> "SampleMetadata":
    """The metadata; errors of any kind."""
    from pyg_glif.cli._tables import open_table
    from pyg_glif.serve.sample_metadata import SampleMetadata, SampleMetadataError

    table = open_table(args.people, args)
    wanted = [*([args.id] if args.id else []), *(args.attributes or [])]
    for name in wanted:
        if name not in table.names:
            meant = nearest_name(name, table.names)
            question = "" if meant is None else f". Did you mean '{meant}'?"
            msg = f"'{args.people}' has no column '{name}'"
            raise SampleMetadataError(f"{msg} (it has {listed(table.names)}){question}")
    frame = table.frame(table.names, [args.id] if args.id else [])
    kept = post.metadata_.get("columns", {}).get("outputs", [])
    if len(frame) == len(post.y_hat_) and all(name in table.names for name in kept):
        _check_same(args.people, kept, frame, post)
    shown = [name for name in frame if name != args.id and name not in kept]
    return SampleMetadata(
        ids=frame[args.id].tolist() if args.id else None,
        frame=frame[shown],
        sensitive={name: frame[name].to_numpy() for name in args.attributes or []},
    )


def _check_same(path: str, outputs: list[str], frame: Any, post: Any) -> None:
    """Raises unless the outputs in a file are those of the fit, row by row."""
    import numpy as np
    import pandas as pd

    from pyg_glif.serve.sample_metadata import SampleMetadataError

    if not outputs:
        return
    fitted = post.y_hat_.reshape(len(frame), -1).double().numpy()
    values = frame[outputs].apply(pd.to_numeric, errors="coerce").to_numpy(np.float64)
    differs = ~np.isclose(values, fitted, rtol=1e-5)
    if differs.any():
        row = int(differs.any(axis=1).argmax())
        msg = f"'{path}' must hold the people of the fit, row by row"
        if np.isnan(values[row][differs[row]]).any():
            name = outputs[int(np.isnan(values[row]).argmax())]
            raise SampleMetadataError(f"{msg} (row {row} has no number in '{name}')")
        raise SampleMetadataError(f"{msg} (row {row} has another output)")


@contextlib.contextmanager
def _logging(level: int) -> Iterator[None]:
    """Context in which the logs of the service go to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    logs = [logging.getLogger(name) for name in ("pyg_glif.serve", "uvicorn.error")]
    before = [log.level for log in logs]
    for log in logs:
        log.addHandler(handler)
        log.setLevel(level)
    try:
        yield
    finally:
        for log, old in zip(logs, before, strict=True):
            log.removeHandler(handler)
            log.setLevel(old)


def _server(uvicorn: Any, config: Any, reload: Any, args: argparse.Namespace) -> Any:
    """A server that ends gracefully, and reloads at the signal HUP."""
    import asyncio

    class Server(uvicorn.Server):  # type: ignore[misc]
        should_exit = force_exit = False

        @contextlib.contextmanager
        def capture_signals(self) -> Iterator[None]:
            loop = asyncio.get_running_loop()
            handlers = {signal.SIGINT: self._stop, signal.SIGTERM: self._stop}
            if hasattr(signal, "SIGHUP"):
                handlers[signal.SIGHUP] = reload
            with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
                for number, handler in handlers.items():
                    loop.add_signal_handler(number, handler)
            yield

        def _stop(self) -> None:
            # A second signal does not wait for open requests.
            self.force_exit = self.should_exit
            self.should_exit = True

        async def startup(self, sockets: Any = None) -> None:
            await super().startup(sockets)
            for server in self.servers:
                for socket in server.sockets:
                    host, port = socket.getsockname()[:2]
                    shown = f"[{host}]" if ":" in host else host
                    note(args, f"serving http://{shown}:{port}{args.root_path}")

    return Server(config)
