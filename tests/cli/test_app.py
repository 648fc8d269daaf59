import ast
import contextlib
import inspect
import io
import json
import os
import re
import subprocess
import sys
import warnings
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pyg_glif import GLIFPostProcessor
from pyg_glif._utils.runtime import Progress
from pyg_glif.cli import main, smooth
from pyg_glif.cli._app import command_parser, commands
from pyg_glif.cli._options import (
    Outcome,
    encoding,
    equivalent,
    names as list_of_names,
    settings_of,
)
from pyg_glif.model_selection import tune
from pyg_glif.sklearn import GLIFClassifier
from tests.cli.calls import Shell, Table, people, write_csv

COMMANDS = commands()


def process(*words: str, **options: object) -> subprocess.CompletedProcess[str]:
    """A call as people make it."""
    command = [sys.executable, "-m", "pyg_glif", *words]
    return subprocess.run(command, capture_output=True, text=True, **options)  # type: ignore[call-overload,no-any-return]


def replaced(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    """Lets the command fail in its own way."""

    def run(_: object) -> Outcome:
        raise error

    monkeypatch.setattr(smooth, "run", run)


WORDS = ("smooth", "x.npy", "--out", "f.npy")


def test_version(shell: Shell) -> None:
    call = shell("--version")
    assert (call.code, call.out) == (0, f"pyg-glif {metadata.version('pyg_glif')}\n")


def test_help_names_every_command_and_code(shell: Shell) -> None:
    text = shell("--help").out
    for word in (*COMMANDS, "exit codes:", "130"):
        assert word in text


@pytest.mark.parametrize("name", COMMANDS)
def test_help_teaches_by_example(shell: Shell, name: str) -> None:
    call = shell(name, "--help")
    assert call.code == 0
    assert call.out.startswith(f"usage: pyg-glif {name} ")
    examples = call.out.partition("examples:")[2]
    assert examples.count(f"pyg-glif {name}") >= 2
    assert max(len(line) for line in examples.splitlines()) <= 88
    for flag in ("--config", "--json", "--quiet", "--debug"):
        assert flag in call.out


DEFAULTS = {
    "smooth": {
        "--lam": (GLIFPostProcessor, "lam"),
        "--target-degree": (GLIFPostProcessor, "target_degree"),
        "--coverage": (GLIFClassifier, "coverage"),
    },
    "tune": {
        "--max-loss": (tune, "max_loss"),
        "--cv": (tune, "cv"),
    },
}


@pytest.mark.parametrize("command", DEFAULTS)
def test_help_states_the_defaults_of_the_library(shell: Shell, command: str) -> None:
    options = shell(command, "--help").out.partition("examples:")[0]
    text = " ".join(options.split())
    for flag, (function, name) in DEFAULTS[command].items():
        about = text[text.rindex(f" {flag} ") :]
        shown = re.search(r"default: ([^,)]+)", about)
        assert shown is not None, flag
        default = inspect.signature(function).parameters[name].default
        assert float(shown[1]) == default, flag


def test_no_command(shell: Shell) -> None:
    shell().fails(
        2, "the following arguments are required: COMMAND. See 'pyg-glif --help'"
    )


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (ValueError("bad\n  value"), 2, "bad value"),
        (TypeError("bad type"), 2, "bad type"),
        (RuntimeError("gave up"), 1, "gave up"),
        (MemoryError(), 1, "MemoryError"),
        (OSError(5, "broken"), 1, "[Errno 5] broken"),
        (ImportError("missing"), 1, "missing"),
        (KeyError("x"), 1, "KeyError: 'x'. Add --debug to see where"),
        (KeyboardInterrupt(), 130, "interrupted"),
    ],
)
def test_errors_have_codes(
    shell: Shell,
    monkeypatch: pytest.MonkeyPatch,
    error: BaseException,
    code: int,
    message: str,
) -> None:
    replaced(monkeypatch, error)
    shell(*WORDS).fails(code, message)
    call = shell(*WORDS, "--json")
    assert call.json == {"error": message, "exit_code": code}
    debug = shell(*WORDS, "--debug")
    assert debug.err.startswith("Traceback (most recent call last):\n")
    assert debug.err.endswith(f"pyg-glif: error: {message}\n")


def test_wrong_options_are_json_too(shell: Shell) -> None:
    call = shell("smooth", "--json")
    assert call.json["exit_code"] == call.code == 2
    assert "DATA" in call.json["error"]


def test_options_are_not_abbreviated(shell: Shell) -> None:
    call = shell(*WORDS, "--ta", "1")
    assert call.code == 2
    assert "unrecognized arguments: --ta 1" in call.err


def test_what_a_command_prints_does_not_spoil_the_outcome(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(_: object) -> Outcome:
        print("chatter")
        with warnings.catch_warnings():
            warnings.simplefilter("default")
            warnings.warn("watch\n out", UserWarning, stacklevel=1)
        return Outcome("text", {"a": [np.float64(0.5), float("nan"), -float("inf")]})

    monkeypatch.setattr(smooth, "run", run)
    call = shell(*WORDS, "--json")
    assert call.json == {"a": [0.5, None, "-Infinity"]}
    assert call.err == "chatter\npyg-glif: warning: watch out\n"
    assert shell(*WORDS).out == "text\n"


TWO = ("x.npy", "y.npy")
OUT = ("--out", "f.csv")
CHEAP = ("--max-loss", 1)
BARS: dict[str, tuple[object, ...]] = {
    "smooth": (*TWO, "--tau", 1, *OUT, "--audit", "r.md"),
    "post": (*TWO, "--post", "fit.safetensors", *OUT),
    "face": (*TWO, "--metric", "face", {"variants": "g.npy"}, {"num_factors": 1}, *OUT),
    "logistic": (*TWO, "--metric", "logistic", "--sensitive", "g.npy", *OUT),
    "audit": (*TWO, "--tau", 1),
    "tune": (*TWO, "--labels", "labels.npy", "--taus", 1, "--lams", 1, *CHEAP),
}


@pytest.mark.parametrize("name", BARS)
def test_progress_bars_can_be_turned_off(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    rng = np.random.default_rng(0)
    np.save("x.npy", rng.normal(size=(40, 3)))
    np.save("y.npy", rng.random(40))
    np.save("g.npy", np.arange(40) % 2)
    np.save("labels.npy", np.arange(40) % 2)
    fit = ("smooth", "x.npy", "y.npy", "--tau", 1, "--out", "o.csv")
    assert shell(*fit, "--save", "fit.safetensors").code == 0
    shown: list[bool | None] = []
    start = Progress.__init__

    def watched(
        self: Progress, total: int, desc: str, show: bool | None = None, **kwargs: Any
    ) -> None:
        shown.append(show)
        start(self, total, desc, False, **kwargs)

    monkeypatch.setattr(Progress, "__init__", watched)
    command = name if name in COMMANDS else "smooth"
    words = (command, *BARS[name])
    call = shell(*words)
    assert call.code == 0, call.err
    assert None in shown  # as the terminal has it
    shown.clear()
    shell(*words, "--quiet")
    assert set(shown) == {False}


def test_as_a_process(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    np.save(tmp_path / "x.npy", rng.normal(size=(30, 2)))
    np.save(tmp_path / "y.npy", rng.random(30))
    words = ("smooth", "x.npy", "y.npy", "--out", "f.npy", "--json")
    call = process(*words, cwd=tmp_path)
    assert (call.returncode, call.stderr) == (0, "")
    assert json.loads(call.stdout)["people"] == 30
    assert np.load(tmp_path / "f.npy").shape == (30,)
    call = process("smooth", "z.npy", "y.npy", cwd=tmp_path)
    assert (call.returncode, call.stdout) == (2, "")
    assert call.stderr == "pyg-glif: error: 'z.npy' does not exist\n"


def test_a_reader_that_leaves_early_is_no_error(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pyg_glif", "smooth", "--help"]
    writer = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=tmp_path
    )
    assert writer.stdout is not None
    assert writer.stderr is not None
    writer.stdout.close()
    assert writer.stderr.read() == b""
    writer.stderr.close()
    assert writer.wait() == 0


INTERRUPTED = """
import os, signal, sys

# A shell lets its background jobs ignore interrupts.
signal.signal(signal.SIGINT, signal.default_int_handler)

class Interrupt:
    def find_spec(self, name, *_):
        if name == {name!r}:
            sys.meta_path.remove(self)
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupt())
from pyg_glif.__main__ import main
sys.exit(main())
"""


@pytest.mark.parametrize(
    "name",
    [
        *("pyg_glif.cli", "argparse", "pyg_glif.cli.smooth"),
        # torch forgets an interrupt while it loads NumPy.
        *("torch", "torch._C", "numpy", "numpy.linalg", "pandas._libs"),
    ],
)
@pytest.mark.slow
def test_interrupted_while_something_is_loaded(tmp_path: Path, name: str) -> None:
    write_csv(tmp_path / "p.csv", ["a", "y"], [(0, 1), (1, 2)])
    words = ["smooth", "p.csv", "--outputs", "y", "--tau", "2", "--out", "f.csv"]
    command = [sys.executable, "-c", INTERRUPTED.format(name=name), *words]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr == "pyg-glif: error: interrupted\n"
    assert not (tmp_path / "f.csv").exists()


HEAVY = {"torch", "numpy", "pandas", "sklearn", "lightning", "pytorch_lightning"}
HEAVY |= {"torch_geometric", "torchmetrics", "torch._dynamo", "matplotlib"}


def loaded(*words: object, cwd: Path | None = None) -> set[str]:
    """The heavy packages that a call has loaded in the end."""
    code = (
        "import sys\n"
        "from pyg_glif.cli import main\n"
        f"main({[str(word) for word in words]})\n"
        f"print(sorted({HEAVY} & sys.modules.keys()))\n"
    )
    command = [sys.executable, "-c", code]
    found = subprocess.run(command, capture_output=True, text=True, check=True, cwd=cwd)
    return set(ast.literal_eval(found.stdout.splitlines()[-1]))


@pytest.mark.parametrize(
    "words",
    [
        ("--help",),
        ("--version",),
        ("tune", "--help"),
        ("smooth",),
        ("smooth", "people.csv", "--lamb", "1"),
        ("no",),
    ],
)
def test_options_load_nothing_heavy(words: tuple[str, ...]) -> None:
    assert loaded(*words) == set()


@pytest.mark.parametrize(
    "words",
    [
        ("smooth", "none.csv", "--outputs", "score", "--out", "f.csv"),
        ("audit", "people.csv", "--outputs", "score", "--scale", "none"),  # has text
        ("smooth", "people.csv", "--outputs", "score", "--sensitive", "sexx"),
        ("tune", "people.csv", "--outputs", "points", "--labels", "repaid"),
        ("audit", "people.csv", "--outputs", "score", "--metric", "svd"),
    ],
)
@pytest.mark.slow
def test_mistakes_are_found_before_torch_is_loaded(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    people().write(tmp_path / "people.csv")
    assert loaded(*words, cwd=tmp_path) <= {"numpy", "pandas"}


def test_work_loads_what_it_needs(tmp_path: Path) -> None:
    people().write(tmp_path / "people.csv")
    words = ("people.csv", "--outputs", "score", "--id", "name", "--sensitive", "sex")
    extra = ("--out", "f.csv", "--save", "f.safetensors", "--audit", "r.md")
    found = loaded("smooth", *words, "--scale", "standard", *extra, cwd=tmp_path)
    assert (tmp_path / "r.md").exists()
    assert found == {"torch", "numpy", "pandas"}


# The least that each command can be asked.
LEAST = {
    "audit": ("x.npy",),
    "explain": ("fit",),
    "info": (),
    "monitor": ("x.npy", "--fit", "fit"),
    "plan": ("x.npy", "--people", "100"),
    "serve": ("fit",),
    "smooth": ("x.npy", "--out", "f.npy"),
    "tune": ("x.npy",),
}


def full() -> io.TextIOWrapper:
    """Standard output on a full disk."""
    return open("/dev/full", "w")


def unread() -> io.TextIOWrapper:
    """Standard output into a pipe that nobody reads any more."""
    reader, writer = os.pipe()
    os.close(reader)
    return open(writer, "w")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs '/dev/full'")
@pytest.mark.parametrize("name", COMMANDS)
def test_standard_output_that_takes_nothing(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lost = "standard output must take what is printed (got [Errno 28] No space left "
    told = {full: f"pyg-glif: error: {lost}on device)\n", unread: "", None: ""}
    for sink, message in told.items():
        for size, words in ((10, []), (100_000, ["--json"])):  # of the buffer, beyond
            outcome = Outcome("a" * size, {"a": "a" * size})
            monkeypatch.setattr(f"pyg_glif.cli.{name}.run", lambda _, o=outcome: o)
            with contextlib.nullcontext() if sink is None else sink() as stream:
                monkeypatch.setattr(sys, "stdout", stream)
                assert main([name, *LEAST[name], *words]) == (1 if message else 0)
            assert capsys.readouterr().err == message


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs '/dev/full'")
def test_errors_keep_their_code_on_a_full_disk(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with full() as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        assert main(["smooth", "nothing.csv", "--json"]) == 2
    assert "standard output" in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs '/dev/full'")
@pytest.mark.parametrize(
    ("sink", "code"), [(">/dev/full", 1), (">&-", 0), ("| head -1 >/dev/null", 0)]
)
def test_a_process_whose_output_is_lost_leaves_no_traceback(
    sink: str, code: int
) -> None:
    command = f"set -o pipefail; {sys.executable} -m pyg_glif info {sink}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert done.returncode == code
    assert done.stderr.count("\n") == (1 if code else 0)
    assert "Traceback" not in done.stderr


# Settings that no run could use, by option.
NEGATIVE, BELOW_ONE = ("-1", "nan", "inf", "x", ""), ("0", "-1", "1.5", "nan", "x")
CHANCE = ("0", "1", "-0.1", "1.5", "nan", "x")
COUNTS = ("--k", "--workers", "--cores", "--num-outputs")
COUNTS += ("num_components", "num_factors", "num_workers")
COUNTS += ("max_rows", "max_bytes", "min_shared")
CHANCES = ("--epsilon", "--alpha", "--delta", "share", "--guarantee", "--monitor")
SIZES = ("--lam", "theta", "difference", "--max-loss", "--reload-seconds", "resolution")
WRONG = {
    **dict.fromkeys(SIZES, NEGATIVE),
    **dict.fromkeys(("--lams", "--taus"), ("-1", "1,-1", "1,nan", "1,,2")),
    **dict.fromkeys(CHANCES, CHANCE),
    **dict.fromkeys(COUNTS, BELOW_ONE),
    **dict.fromkeys(("num_nearest", "num_worst"), ("-1", "1.5", "x")),
    **dict.fromkeys(("--coverage", "--limit"), ("0", "-0.1", "1.5", "nan", "x")),
    **dict.fromkeys(("--target-degree", "ridge"), ("0", "-1", "nan", "inf", "x")),
    "--tau": ("-1", "nan", "x"),
    "--ks": ("0", "3,0", "1.5"),
    "--cv": ("1", "-1", "2.5", "x"),
    "eps": ("0", "0.5", "-1", "nan"),
    "--threshold": ("nan", "inf", "x"),
    "--tolerance": ("-1", "nan", "inf", "pairs=-0.1", "pairs"),
    "--people": ("0", "-5", "nan", "inf"),
    "--port": ("-1", "70000", "80.5", "x"),
}
# Types of options that hold no number.
TEXTS = (None, list_of_names, encoding, equivalent)


def numeric_options() -> list[tuple[str, str]]:
    """Every option and setting of every command that takes a number."""
    options = []
    for name in COMMANDS:
        parser = command_parser(name)
        kinds = {
            a.option_strings[0]: a.type for a in parser._actions[1:] if a.option_strings
        }
        kinds |= {n: option.get("type") for n, option in settings_of(parser).items()}
        options += [(name, key) for key, kind in kinds.items() if kind not in TEXTS]
    return options


@pytest.mark.parametrize(("command", "option"), numeric_options())
def test_settings_that_cannot_be_are_refused_before_any_work(
    shell: Shell, command: str, option: str
) -> None:
    for value in WRONG[option]:
        # There are no files: whoever looked for them would say so instead.
        if option.startswith("--"):
            call = shell(command, "absent.csv", f"{option}={value}")
            start = f"argument {option}: must be "
        else:
            call = shell(command, "absent.csv", {option: value})
            start = f"'settings.toml': '{option}' must be "
        assert call.code == 2
        assert call.err.startswith(f"pyg-glif: error: {start}"), (value, call.err)
        assert call.err.count("\n") == 1
        assert {path.name for path in Path().iterdir()} <= {"settings.toml"}


CONFIG = """
outputs = ["score"]
id = "name"
sensitive = ["sex"]
ignore = ["repaid"]
scale = "standard"
lam = 0.3
theta = 0.5
cv = 3
"""


def test_a_file_of_settings_is_the_same_as_words(shell: Shell, table: Table) -> None:
    Path("fit.toml").write_text(CONFIG)
    words = ("--outputs", "score", "--id", "name", "--sensitive", "sex", "--ignore")
    words += ("repaid", "--scale", "standard", {"theta": 0.5}, "--json")
    config = ("smooth", "people.csv", "--config", "fit.toml", "--json")
    assert (
        shell(*config).json == shell("smooth", "people.csv", *words, "--lam", 0.3).json
    )
    # The command line wins.
    found, expected = shell(*config, "--lam", 2, "--metric", "euclidean").json, 2.0
    assert found["lam"] == expected
    # One file serves several commands.
    words = ("tune", "people.csv", "--labels", "repaid", "--config", "fit.toml")
    assert shell(*words).code == 0


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("lamb = 1", "has the unknown option 'lamb' ('smooth' knows 'address', "),
        ("lam = -1", ": 'lam' must be a non-negative number (got '-1')"),
        ("lam = true", ": 'lam' must be a non-negative number (got 'True')"),
        ("outputs = 3", ": 'outputs' must be names with commas in between"),
        ("joint = 1", ": 'joint' must be true or false (got 1)"),
        ("sheet = 1", ": 'sheet' must be a text (got 1)"),
        (
            "normalization = 'rw'",
            ": 'normalization' must be one of 'none', 'density', ",
        ),
        ("equivalent = {job = ['a']}", ": 'equivalent' must be like {"),
        ("config = 'a'", "has the unknown option 'config'"),
        ("lam", "must be TOML ("),
    ],
)
def test_settings_that_are_refused(shell: Shell, content: str, message: str) -> None:
    Path("fit.toml").write_text(content)
    call = shell("smooth", "absent.csv", "--config", "fit.toml")
    assert call.code == 2
    assert "'fit.toml'" in call.err
    assert message in call.err
    assert "Did you mean 'lam'?" in call.err or "lamb" not in content
    shell("smooth", "absent.csv", "--config", "no.toml").fails(
        2, "--config: 'no.toml' does not exist"
    )


def test_smooth_has_few_options(shell: Shell) -> None:
    for name in COMMANDS:
        options = re.findall(
            r"^ +(?:-h, )?(--[a-z-]+)", shell(name, "--help").out, re.M
        )
        assert 0 < len(set(options)) <= 28, name


INPUTS = {
    "smooth": ("DATA", "OUTPUTS", "--post", "matrix", "directions", "side_rows"),
    "audit": ("DATA", "OUTPUTS", "--after", "matrix"),
    "tune": ("DATA", "OUTPUTS", "--pairs"),
    "explain": ("FIT", "--new"),
    "monitor": ("DATA", "OUTPUTS", "--fit"),
    "serve": ("FIT", "--people"),
}


@pytest.mark.parametrize("path", ["absent.csv", "no/where.csv", "people", "folder"])
@pytest.mark.parametrize(
    ("command", "place"), [(name, one) for name, many in INPUTS.items() for one in many]
)
def test_a_bad_input_is_an_error_about_the_input(
    shell: Shell, command: str, place: str, path: str
) -> None:
    Path("there.csv").write_text("a,y\n1,2\n")
    Path("folder").mkdir()
    words = [path if place in ("DATA", "FIT") else "there.csv"]
    words += [path] if place == "OUTPUTS" else []
    words += [place, path] if place.startswith("--") else []
    settings = [{place: path}] if place.islower() and place[0] != "-" else []
    if command in ("smooth", "audit", "explain"):
        words += ["--out", "no/where/either.csv"]
    call = shell(command, *words, *settings)
    assert call.code == 2
    assert f"'{path}'" in call.err
    assert "--out" not in call.err
    assert call.err.count("\n") == 1
