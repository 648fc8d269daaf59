"""Hostile tables through the command line, frames and arrays through a fit."""

import csv
import io
import json
import re
import tempfile
import warnings
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from pyg_glif import GLIFPostProcessor, glif_smooth
from pyg_glif.cli import main
from pyg_glif.distances import Mahalanobis, SensitiveSubspace
from pyg_glif.graph import RadiusIndex
from pyg_glif.laplacian import LaplacianOperator

from .harness import Campaign, Case

Array = NDArray[np.float64]


def _run(case: Case) -> None:
    with warnings.catch_warnings():
        # Arrays after a fit on frames are taken by position, with a warning.
        warnings.filterwarnings("ignore", ".*column names, while the fit", UserWarning)
        parts = [_command, _command, _command, _options, _options]
        case.pick([*parts, _report, _frames, _aliases])(case)


# --- the command line -----------------------------------------------------------


@dataclass
class _Table:
    """A table as it should be understood."""

    id_name: str
    output_name: str
    ids: list[str]
    x: Array  # [N, 2]
    y: Array  # [N]

    @property
    def header(self) -> list[str]:
        return [self.id_name, "age", "income", self.output_name]

    @property
    def rows(self) -> list[list[str]]:
        return [
            [name, *(repr(float(v)) for v in row), repr(float(score))]
            for name, row, score in zip(self.ids, self.x, self.y, strict=True)
        ]

    def text(
        self, delimiter: str = ",", newline: str = "\n", quote: bool = False
    ) -> str:
        out = io.StringIO()
        style = csv.QUOTE_ALL if quote else csv.QUOTE_MINIMAL
        writer = csv.writer(
            out, delimiter=delimiter, lineterminator=newline, quoting=style
        )
        writer.writerows([self.header, *self.rows])
        return out.getvalue()


_NAMES = [
    "score",
    "score.0",
    "0",
    "x.1",
    "näme",
    'sc"ore',
    "sc,ore",
    "sc;ore",
    "two\nlines",
    "<b>bold</b>",
    "a|b",
    "a\\|b",
    "=1+1",
    "--out",
    "*",
    "outputs",
]
_IDS = [
    "=1+1",
    "+1",
    "-1",
    "@x",
    "a,b",
    'q"q',
    "line\nbreak",
    "<i>",
    "007",
    "",
    "é",
    " s ",
]


def _table(case: Case) -> _Table:
    size = case.pick([2, 5, 12])
    id_name, output_name = case.rng.choice(_NAMES, size=2, replace=False)
    if case.chance(0.3):
        id_name, output_name = "score", "score.0"
    ids = [str(case.pick(_IDS)) if case.chance(0.5) else f"p{i}" for i in range(size)]
    x = np.round(case.rng.normal(size=(size, 2)), 3)
    return _Table(str(id_name), str(output_name), ids, x, case.rng.random(size))


#: Other spellings of the same table.
_SPELLINGS: dict[str, Callable[[_Table], str]] = {
    "plain": lambda t: t.text(),
    "byte order mark": lambda t: "\ufeff" + t.text(),
    "Windows": lambda t: t.text(newline="\r\n"),
    "semicolons": lambda t: t.text(delimiter=";"),
    "tabs": lambda t: t.text(delimiter="\t"),
    "quoted": lambda t: t.text(quote=True),
    "no last line break": lambda t: t.text().rstrip("\n"),
}


def _ragged(case: Case, text: str) -> str:
    lines = text.splitlines()
    lines[-1] += ",1"
    return "\n".join(lines)


def _replaced(*cells: str) -> Callable[[Case, str], str]:
    def damage(case: Case, text: str) -> str:
        lines = text.split("\n")
        at = int(case.rng.integers(1, max(2, len(lines) - 1)))
        parts = lines[min(at, len(lines) - 1)].split(",")
        parts[int(case.rng.integers(len(parts)))] = case.pick(cells)
        lines[min(at, len(lines) - 1)] = ",".join(parts)
        return "\n".join(lines)

    return damage


#: Ways to spoil it; any answer but a traceback is fine.
_DAMAGES: dict[str, Callable[[Case, str], str]] = {
    "ragged": _ragged,
    "not a number": _replaced("x", "1e400", "nan", "inf", "-inf", "0x1F", "", "1_000"),
    "odd characters": _replaced(
        "\x00", "\uff11\uff12", "\u200b1", "1,5", "\u0663", "\x1a"
    ),
    "open quote": lambda case, text: text.replace(",", ',"', 1),
    "empty": lambda case, text: case.pick(["", "\n", "\n\n\n", ",,,", "\ufeff"]),
    "header only": lambda case, text: text.split("\n")[0],
    "twice": lambda case, text: text.replace("age", "income", 1),
    "blank line": lambda case, text: text.replace("\n", "\n\n", 1),
    "long line": lambda case, text: text + "9" * 200_000,
    "surrogates": lambda case, text: text + "\udcff\udc80,1,2,3",
    "huge numbers": _replaced("1e300", "-1e308", "1e-320", "9" * 400),
}


def _call(words: list[str]) -> tuple[int | None, str, str]:
    """Exit code, standard output and error of a call; none if something escaped."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        try:
            code: int | None = main(words)
        except BaseException as error:
            code = None
            err.write(f"{type(error).__name__}: {error}")
    return code, out.getvalue(), err.getvalue()


def _verdict(case: Case, kind: str, words: list[str]) -> int | None:
    """Runs a call and reports whatever is not a plain answer."""
    code, out, err = _call(words)
    case.count("calls")
    case.count(f"exit {code}")
    shown = " ".join(words[:1] + [w for w in words[1:] if w.startswith("--")])
    detail = f"{kind}: {err.strip()[-200:]} ({shown})"
    case.check(code in (0, 1, 2), "escapes main", detail)
    case.check("Traceback" not in err, "traceback", detail)
    case.check("Add --debug" not in err, "unexpected error", detail)
    case.check(code == 0 or err.strip(), "fails without a word", detail)
    if "--json" in words:
        try:
            json.loads(out, parse_constant=_refuse)
        except ValueError as error:
            case.found("--json prints no JSON", f"{error}; {detail}")
    return code


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def _command(case: Case) -> None:
    """A table through ``smooth``, spelled in several ways or spoilt."""
    table = _table(case)
    spelling = case.pick(list(_SPELLINGS))
    spoilt = case.pick(list(_DAMAGES)) if case.chance(0.5) else None
    text = _SPELLINGS[spelling](table)
    if spoilt:
        text = _DAMAGES[spoilt](case, text)
    with tempfile.TemporaryDirectory() as folder:
        path, out = Path(folder) / "people.csv", Path(folder) / "fair.csv"
        path.write_bytes(text.encode("utf-8", "surrogateescape"))
        lam, tau = float(case.pick([0.5, 2.0])), float(case.pick([0.5, 1.0, 3.0]))
        words = ["smooth", str(path), f"--outputs={_word(table.output_name)}"]
        words += [f"--id={_word(table.id_name)}", f"--out={out}"]
        words += [f"--tau={tau}", f"--lam={lam}", _config(folder, theta="0.5")]
        words += ["--json"] if case.chance(0.3) else ["--quiet"]
        kind = f"spoilt: {spoilt}" if spoilt else f"spelling: {spelling}"
        code = _verdict(case, kind, words)
        if spoilt:
            return
        context = f"--id {table.id_name!r}, --outputs {table.output_name!r}, {spelling}"
        if case.check(
            code == 0, "a fair table is refused", f"{context}: {_call(words)[2]}"
        ):
            _compare(case, table, out, tau, lam, context)


def _config(folder: str, **settings: str) -> str:
    """The option of a file of settings, whose values are written as they are."""
    path = Path(folder) / "settings.toml"
    lines = [f"{name} = {value}" for name, value in settings.items()]
    path.write_text("\n".join(lines), encoding="utf-8")
    return f"--config={path}"


def _word(name: str) -> str:
    """A column name as options take it."""
    plain = not set(name) & set(',"\n')
    return name if plain else '"' + name.replace('"', '""') + '"'


def _compare(
    case: Case, table: _Table, out: Path, tau: float, lam: float, context: str
) -> None:
    """Names, ids and numbers of what was written."""
    with out.open(newline="", encoding="utf-8-sig") as file:
        header, *rows = csv.reader(file)
    names = [table.id_name.strip(), table.output_name.strip()]
    bare = [name.removeprefix("'") for name in header]
    if not case.check(
        bare == names, "other columns than asked for", f"{header}; {context}"
    ):
        return
    ids = [row[0] for row in rows]
    # An apostrophe before what a spreadsheet would take for a formula is fine.
    same = len(ids) == len(table.ids) and all(
        got.strip() in (want.strip(), "'" + want.strip())
        for got, want in zip(ids, table.ids, strict=True)
    )
    case.check(same, "ids are changed", f"{ids} for {table.ids}; {context}")
    sq_dist = ((table.x[:, None] - table.x[None]) ** 2).sum(-1)
    W = np.where(np.sqrt(sq_dist) <= tau, np.exp(-0.5 * sq_dist), 0.0)
    np.fill_diagonal(W, 0.0)
    A = np.eye(len(W)) + lam * (np.diag(W.sum(1)) - W)
    off = np.abs(np.linalg.solve(A, table.y) - [float(row[1]) for row in rows]).max()
    case.check(
        off <= 1e-5, "the command line smooths otherwise", f"{off:.1e}; {context}"
    )


#: Odd values of options; those without dashes go to the file of settings.
_VALUES = {
    "--tau": ["nan", "inf", "-1", "0", "1e200", "x", "1,5", ""],
    "--lam": ["nan", "inf", "-1", "0", "1e300", "x"],
    "theta": ["nan", "-1", "1e300", "0"],
    "--target-degree": ["0", "-1", "1e9", "nan", "0.5"],
    "--features": ["age", "no such", "score", "*", "", ",", "age,age", "a*"],
    "--outputs": ["score", "age", "no such", "", "score,score", "s*"],
    "--id": ["id", "no such", "score", "sex"],
    "--sensitive": ["sex", "no such", "age", "sex,sex"],
    "--scale": ["effect", "standard", "none", "no such"],
    "variants": ["'sex'", "'no such'", "'id'", "7"],
    "--labels": ["repaid", "sex", "no such", "age"],
    "positive": ["'1'", "'f'", "'no such'", "1"],
    "--threshold": ["nan", "0.5", "-inf"],
    "--metric": ["euclidean", "mahalanobis", "svd", "face", "logistic", "subspace"],
    "matrix": ["'MISSING'", "'DATA'", "'MATRIX'"],
    "directions": ["'MISSING'", "'DATA'", "'MATRIX'"],
    "side_rows": ["'MISSING'", "'MATRIX'"],
    "num_components": ["0", "1", "-1", "99", "1.5"],
    "num_factors": ["0", "1", "99"],
    "ridge": ["0", "-1", "nan", "1e300"],
    "--link": ["logit", "softmax", "log"],
    "eps": ["0", "0.5", "-1", "1e-3", "nan"],
    "normalization": ["'none'", "'density'", "'nrw'", "'rw'", "[]"],
    "num_nearest": ["0", "1", "-1", "999"],
    "num_worst": ["0", "-1", "999"],
    "--taus": ["1,2", "nan", "-1", "", "inf", "0"],
    "--lams": ["1,2", "nan", "-1", "", "0"],
    "--max-loss": ["0", "-1", "nan"],
    "mask": ["'repaid'", "'sex'", "'no such'"],
    "joint": ["true", "false", "1"],
    "--pairs": ["MISSING", "DATA", "MATRIX"],
    "--after": ["MISSING", "DATA", "MATRIX"],
    "--post": ["MISSING", "DATA"],
}
_SWITCHES = ["--quiet", "--json"]


def _options(case: Case) -> None:
    """Any command with any options: an answer or one plain line, never a traceback."""
    command = str(case.pick(["smooth", "audit", "tune"]))
    size = int(case.pick([1, 2, 6, 30]))
    with tempfile.TemporaryDirectory() as folder:
        path, matrix = Path(folder) / "people.csv", Path(folder) / "matrix.csv"
        frame = pd.DataFrame(
            {
                "id": [f"p{i}" for i in range(size)],
                "age": np.round(case.rng.normal(size=size), 2),
                "income": case.pick([1.0, 1e8]) * np.round(case.rng.random(size), 2),
                "score": case.rng.random(size),
                "sex": ["fm"[i % 2] for i in range(size)],
                "repaid": case.rng.integers(0, 2, size=size),
            }
        )
        frame.to_csv(path, index=False)
        pd.DataFrame([[0, 1], [1, 0]], columns=["a", "b"]).to_csv(matrix, index=False)
        files = {
            "MISSING": f"{folder}/none.csv",
            "DATA": str(path),
            "MATRIX": str(matrix),
        }
        words = [command, str(path), "--id=id", "--outputs=score"]
        words += ["--ignore=sex,repaid"] if case.chance(0.7) else []
        words += [f"--out={folder}/fair.csv"] if command == "smooth" else []
        words += ["--labels=repaid"] if command == "tune" else []
        settings = {}
        for option in case.rng.choice(list(_VALUES), size=int(case.rng.integers(1, 4))):
            value = str(case.pick(_VALUES[option]))
            for name, file in files.items():
                value = value.replace(name, file)
            if option.startswith("--"):
                words.append(f"{option}={value}")
            else:
                settings[str(option)] = value
        words += [_config(folder, **settings)] if settings else []
        words += [flag for flag in _SWITCHES if case.chance(0.2)]
        shown = " ".join(word.replace(folder, "") for word in [*words, str(settings)])
        _verdict(case, shown, words)


def _report(case: Case) -> None:
    """Reports must neither run nor lose what names and groups hold."""
    table = _table(case)
    name = case.pick(["sex", "a|b", "a\\|b", "<script>alert(1)</script>", "_x_", "`x`"])
    values = ["<script>alert(1)</script>", "x|y", "x\\|y", "[a](b)", "f", "m\nn"]
    first, second = map(str, case.rng.choice(values, size=2, replace=False))
    group = [first if i % 2 else second for i in range(len(table.ids))]
    suffix = case.pick([".md", ".html", ".json"])
    with tempfile.TemporaryDirectory() as folder:
        path, out = Path(folder) / "people.csv", Path(folder) / f"report{suffix}"
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(["id", "age", "income", "score", name])
            writer.writerows(
                [f"p{i}", *row, y, label]
                for i, (row, y, label) in enumerate(
                    zip(table.x.tolist(), table.y, group, strict=True)
                )
            )
        words = ["smooth", str(path), "--outputs=score", "--id=id", "--tau=2"]
        words += [f"--sensitive={_word(name)}", f"--out={Path(folder) / 'o.csv'}"]
        words += [f"--audit={out}", "--quiet", _config(folder, num_nearest="1")]
        code = _verdict(case, "report", words)
        if code != 0 or not out.exists():
            case.check(code == 2, "a report is refused", f"{name!r}: {_call(words)[2]}")
            return
        text = out.read_text(encoding="utf-8")
    case.count("reports")
    context = f"{suffix}, attribute {name!r}, groups {first!r} and {second!r}"
    if suffix == ".json":
        json.loads(text, parse_constant=_refuse)
        return
    # Pages have scripts of their own, none of which begins like the names' one.
    raw = re.search(r"(?<!\\)<script>alert", text)
    case.check(not raw, f"raw HTML in {suffix}", context)
    if suffix == ".md":
        tables = re.split(r"\n(?!\|)", text)
        for block in (block for block in tables if "\n|" in block):
            lines = [line for line in block.split("\n") if line.startswith("|")]
            bars = {len(re.findall(r"(?<!\\)(?:\\\\)*\|", line)) for line in lines}
            case.check(
                len(bars) == 1, "a Markdown table breaks", f"{lines[:4]}; {context}"
            )


# --- frames and arrays ----------------------------------------------------------


def _frames(case: Case) -> None:
    """Columns are matched by name; missing and new ones are refused."""
    size, rng = 30, case.rng
    names = ["age", "income", "debt"]
    frame = pd.DataFrame(rng.normal(size=(size, 3)) * [1.0, 2.0, 0.5], columns=names)
    y = pd.Series(rng.random(size), index=frame.index, name="score")
    order = [names[i] for i in rng.permutation(3)]
    new, y_new = frame[:10] + 0.1, y[:10]
    post = GLIFPostProcessor(tau=2.0, lam=2.0, theta=0.1).fit(frame, y)
    want = post.transform(new, y_new).to_numpy()
    if case.chance(0.5):
        with tempfile.TemporaryDirectory() as folder:
            post.save(Path(folder) / "fit.safetensors")
            post = GLIFPostProcessor.load(Path(folder) / "fit.safetensors")
    case.count("frames")
    got = post.transform(new[order], y_new).to_numpy()
    off = float(np.abs(got - want).max())
    case.check(off <= 1e-12, "the order of columns matters", f"{off:.1e} for {order}")
    wide = new.assign(extra=1.0)
    renamed = new.rename(columns={"age": "years"})
    for bad, what in ((wide, "new"), (new[names[:2]], "missing"), (renamed, "renamed")):
        try:
            post.transform(bad, y_new)
        except ValueError:
            continue
        except Exception as error:
            case.refused(error, f"{what} columns")
            continue
        case.found(f"{what} columns are taken", str(list(bad.columns)))
    plain = post.transform(new.to_numpy(), y_new.to_numpy())
    case.check(np.abs(plain - want).max() <= 1e-12, "an array is taken otherwise")


def _aliases(case: Case) -> None:
    """What the caller does to arrays afterwards is no matter of ours."""
    kind = case.pick(list(_ALIASES))
    try:
        before, after = _ALIASES[kind](case)
    except Exception as error:
        case.refused(error, f"aliases ({kind})")
        return
    case.count("aliases")
    same = len(before) == len(after) and all(
        np.array_equal(a, b) for a, b in zip(before, after, strict=True)
    )
    case.check(same, f"{kind}: later changes of the caller's data show")


def _as(case: Case, array: Array) -> Any:
    """The array, or the same as a tensor or frame."""
    kind = case.pick(["array", "tensor", "frame"])
    if kind == "tensor":
        return torch.from_numpy(array)
    if kind == "frame" and array.ndim == 2:
        return pd.DataFrame(array, columns=list("abc"), copy=False)
    return array


def _spoil(value: Any) -> None:
    """Overwrites the caller's data."""
    if isinstance(value, pd.DataFrame):
        value.iloc[:, :] = 0.0
    else:
        value[:] = 0.0


def _post_state(case: Case, post: GLIFPostProcessor, new: Array, y: Array) -> list[Any]:
    with tempfile.TemporaryDirectory() as folder:
        post.save(Path(folder) / "fit.safetensors")
        saved = GLIFPostProcessor.load(Path(folder) / "fit.safetensors")
    return [
        post.transform(new, y),
        post.transform(new, y, joint=True),
        post.y_fair_.numpy().copy(),
        post.explain(1).weight.numpy().copy(),
        saved.transform(new, y),
        saved.y_fair_.numpy().copy(),
    ]


def _fit_alias(case: Case) -> tuple[list[Any], list[Any]]:
    x, y = case.rng.normal(size=(20, 3)), case.rng.random(20)
    new, y_new = x[:5] + 0.1, y[:5].copy()
    given_x, given_y = _as(case, x), _as(case, y)
    post = GLIFPostProcessor(tau=2.0)
    method = case.pick(["fit", "fit_transform", "partial_fit"])
    if method == "partial_fit":
        post.fit(x[:10].copy(), y[:10].copy())
    out = getattr(post, method)(given_x, given_y)
    before = _post_state(case, post, new, y_new) if case.chance(0.5) else None
    twin = GLIFPostProcessor(tau=2.0)
    if before is None:  # nothing may be kept for later either
        if method == "partial_fit":
            twin.fit(x[:10].copy(), y[:10].copy())
        getattr(twin, method)(x.copy(), y.copy())
        before = _post_state(case, twin, new, y_new)
    _spoil(given_x)
    _spoil(given_y)
    x[:], y[:] = 0.0, 0.0
    if method == "fit_transform":
        _spoil(out)
    return before, _post_state(case, post, new, y_new)


def _index_alias(case: Case) -> tuple[list[Any], list[Any]]:
    x = torch.from_numpy(case.rng.normal(size=(case.pick([20, 1200]), 3)))
    new = x[:5] + 0.1
    index = RadiusIndex(x, 1.0)
    before = [part.numpy().copy() for part in index.query(new)]
    x[:] = 7.0
    return before, [part.numpy().copy() for part in index.query(new)]


def _operator_alias(case: Case) -> tuple[list[Any], list[Any]]:
    edges = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    weight = torch.tensor([1.0, 1.0, 2.0, 2.0], dtype=torch.float64)
    lap = LaplacianOperator(edges, weight, normalization=case.pick([None, "density"]))
    y = torch.tensor([1.0, 2.0, 5.0], dtype=torch.float64)

    def state() -> list[Any]:
        f = glif_smooth(y, lap, lam=1.0)
        return [f.numpy().copy(), (lap @ y).numpy().copy(), lap.quadratic(y).numpy()]

    before = state()
    weight[:] = 9.0
    edges[:] = 0
    return before, state()


def _distance_alias(case: Case) -> tuple[list[Any], list[Any]]:
    x = torch.from_numpy(case.rng.normal(size=(4, 2)))
    given = torch.eye(2, dtype=torch.float64) * 2.0
    kind = case.pick(["matrix", "factor", "subspace"])
    if kind == "matrix":
        distance: Any = Mahalanobis(given)
    elif kind == "factor":
        distance = Mahalanobis.from_factor(given)
    else:
        given = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
        distance = SensitiveSubspace(given)
    before = [distance(x, x).detach().numpy().copy()]
    given[:] = 5.0
    return before, [distance(x, x).detach().numpy().copy()]


_ALIASES = {
    "post-processor": _fit_alias,
    "RadiusIndex": _index_alias,
    "LaplacianOperator": _operator_alias,
    "distance": _distance_alias,
}

CAMPAIGN = Campaign("tables", _run, 60, 1.5)
