import hashlib
import json
import math
import multiprocessing
import os
import re
import stat
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from pyg_glif.distances import (
    CallableDistance,
    Euclidean,
    FairDistance,
    Mahalanobis,
    SensitiveSubspace,
)
from pyg_glif.errors import DamagedFileError
from pyg_glif.fit import io as _persistence
from pyg_glif.links import Identity, Link, Logit, Softmax
from pyg_glif.postprocessing import GLIFPostProcessor
from pyg_glif.solvers import CG, Auto, Cholesky, CoordinateDescent, SolveStatus
from tests.frames import Frame
from tests.postprocessing.people import people

GOLDEN = Path(__file__).parent / "golden"
SIGMA = torch.tensor([[2.0, 0.5], [0.5, 1.0]])
DISTANCES = [
    None,
    Euclidean(),
    Mahalanobis(SIGMA),
    Mahalanobis(SIGMA.double(), learnable=True),
    SensitiveSubspace(torch.tensor([[1.0, 3.0]])),
]


class Halved(FairDistance):
    def embed(self, x: torch.Tensor) -> torch.Tensor:
        return x / 2


@pytest.mark.parametrize("distance", DISTANCES, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_loaded_gives_the_same_bits(
    distance: FairDistance | None, dtype: torch.dtype, tmp_path: Path
) -> None:
    group = people(dtype=dtype)
    post = group.fit(distance=distance, solver=None, normalization="density")
    post.save(tmp_path / "fit.safetensors")
    other = GLIFPostProcessor.load(str(tmp_path / "fit.safetensors"))
    assert repr(other) == repr(post)
    assert other.tau_ == post.tau_
    assert torch.equal(other.y_fair_, post.y_fair_)
    assert torch.equal(other.graph_.edge_index, post.graph_.edge_index)
    assert torch.equal(other.graph_.edge_weight, post.graph_.edge_weight)
    for joint in (False, True):
        first = post.transform(group.x_new, group.y_new, joint=joint)
        second = other.transform(group.x_new, group.y_new, joint=joint)
        assert torch.equal(first, second)
    assert torch.equal(other.explain(4).weight, post.explain(4).weight)
    found, saved = other.solution_, post.solution_
    assert found.status is saved.status is SolveStatus.CONVERGED
    assert (found.num_iter, found.solver) == (saved.num_iter, saved.solver)
    assert torch.equal(found.error_bound, saved.error_bound)
    post.partial_fit(group.x_new, group.y_new)
    other.partial_fit(group.x_new, group.y_new)
    assert torch.equal(other.y_fair_, post.y_fair_)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_directions_are_not_rounded_again(dtype: torch.dtype, tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(40, 9, generator=generator, dtype=dtype)
    distance = SensitiveSubspace(x[:4])
    post = GLIFPostProcessor(distance=distance, target_degree=5).fit(x, x[:, 0])
    post.save(tmp_path / "fit")
    other = GLIFPostProcessor.load(tmp_path / "fit")
    assert torch.equal(other.distance.directions, distance.directions)
    assert other.distance.directions.dtype == dtype


@pytest.mark.parametrize(
    "solver",
    [
        Auto(rtol=1e-8),
        CG(rtol=1e-7, preconditioner=None, deflate=True),
        CG(max_iter=500),
        Cholesky(),
        CoordinateDescent(epochs=3, batch_size=7),
    ],
    ids=lambda s: type(s).__name__,
)
@pytest.mark.parametrize("link", [None, Identity(), Logit(eps=1e-3), Softmax("logits")])
def test_settings_survive(solver: object, link: Link | None, tmp_path: Path) -> None:
    group = people()
    post = group.fit(solver=solver, link=link, tau=math.inf, lam=1)
    post.save(tmp_path / "fit")
    other = GLIFPostProcessor.load(tmp_path / "fit")
    assert (other.solver, other.link, other.tau, other.lam) == (
        solver,
        link,
        math.inf,
        1,
    )


def test_parameters_of_the_fit_are_saved(tmp_path: Path) -> None:
    group = people()
    post = group.fit(tau=None, target_degree=5, solver=None).set_params(lam=9.0)
    post.save(tmp_path / "fit")
    other = GLIFPostProcessor.load(tmp_path / "fit")
    assert (other.tau, other.target_degree, other.lam) == (None, 5, 0.7)
    assert other.solver is None
    assert other.tau_ == post.tau_


def test_one_file_replaced_in_one_step(tmp_path: Path) -> None:
    post = people().fit()
    post.save(tmp_path / "fit")
    post.save(tmp_path / "fit")
    assert [path.name for path in tmp_path.iterdir()] == ["fit"]
    _, header = read_header(tmp_path / "fit")
    assert header["format"] == "pyg_glif.GLIFPostProcessor"
    assert header["version"] == 1


@pytest.mark.parametrize(
    "distance", [Halved(), CallableDistance(lambda a, b: torch.cdist(a, b))]
)
def test_own_distances_are_left_out_and_handed_in(
    distance: FairDistance, tmp_path: Path
) -> None:
    group = people()
    post = group.fit(distance=distance)
    kind = type(distance).__name__
    with pytest.raises(TypeError) as caught:
        post.save(tmp_path / "fit")
    assert str(caught.value) == (
        f"'distance' must be of a registered class to be saved (got {kind}). Decorate "
        "the class by 'pyg_glif.registry.register', or use save(path, "
        'omit=["distance"]) and load(path, distance=...)'
    )
    assert not list(tmp_path.iterdir())
    post.save(tmp_path / "fit", omit=["distance"])
    with pytest.raises(ValueError, match="'distance' must be given") as caught:
        GLIFPostProcessor.load(tmp_path / "fit")
    assert str(caught.value) == (
        "'distance' must be given, because the file leaves it out. "
        "Use load(path, distance=...)"
    )
    other = GLIFPostProcessor.load(tmp_path / "fit", distance=distance)
    first = post.transform(group.x_new, group.y_new)
    assert torch.equal(other.transform(group.x_new, group.y_new), first)


def test_subclasses_are_own_classes(tmp_path: Path) -> None:
    class Euclidean(FairDistance):  # the name alone does not count
        def embed(self, x: torch.Tensor) -> torch.Tensor:
            return 2 * x

    with pytest.raises(TypeError, match=r"to be saved \(got Euclidean\)"):
        people().fit(distance=Euclidean()).save(tmp_path / "fit")
    solver = CoordinateDescent(generator=torch.Generator())
    with pytest.raises(TypeError, match=r"generator' must be plain"):
        people().fit(solver=solver).save(tmp_path / "fit")
    with pytest.raises(ValueError, match="'omit' must be one of 'distance'"):
        people().fit().save(tmp_path / "fit", omit=["x"])


def checksum(text: str, tensors: dict[str, torch.Tensor]) -> str:
    """The checksum as the docstring of the module has it."""
    content = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name]
        content.update(f"{name!r} {tensor.dtype} {list(tensor.shape)};".encode())
        content.update(tensor.numpy().tobytes())
    return hashlib.sha256((text + content.hexdigest()).encode()).hexdigest()


def read_header(path: Path) -> tuple[str, dict[str, Any]]:
    """Checksum and plain data of a file."""
    with safe_open(path, framework="pt") as file:
        code, text = file.metadata()["pyg_glif"].split(" ", 1)
    return code, json.loads(text)


def rewrite(path: Path, *, protect: bool = True, **changes: object) -> None:
    """Changes entries of the header, and the checksum with them if ``protect``."""
    (code, header), tensors = read_header(path), load_file(path)
    text = json.dumps({**header, **changes})
    if protect:
        code = checksum(text, tensors)
    save_file(tensors, path, metadata={"pyg_glif": f"{code} {text}"})


def test_bad_files(tmp_path: Path) -> None:
    path = tmp_path / "fit"
    ours = "'path' must be a file that 'GLIFPostProcessor.save' wrote (got "

    def message(kind: type = DamagedFileError) -> str:
        with pytest.raises(ValueError, match="'path' must be") as caught:
            GLIFPostProcessor.load(path)
        assert type(caught.value) is kind
        return str(caught.value)

    path.write_bytes(b"not a file of this kind")
    assert message().startswith(ours)
    path.write_bytes(b"")
    assert message().startswith(ours)
    save_file({"x": torch.zeros(2)}, path)
    kind = "another kind of safetensors file"
    assert message() == f"{ours}{kind} in '{path}')"
    people().fit().save(path)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    assert message().startswith(ours)
    flipped = bytearray(whole)
    flipped[-5] ^= 1
    path.write_bytes(bytes(flipped))
    assert message() == f"{ours}a wrong checksum in '{path}')"
    for changes in ({"tau": 7.0}, {"version": 9}, {"format": "other"}):
        path.write_bytes(whole)
        rewrite(path, protect=False, **changes)
        assert message() == f"{ours}a wrong checksum in '{path}')"
    path.write_bytes(whole)
    rewrite(path, version=2)
    assert message(ValueError) == (
        f"'path' must be of format version 1 (got 2 in '{path}'). "
        "Install a later pyg_glif"
    )
    path.write_bytes(whole)
    rewrite(path, format="other")
    assert message() == f"{ours}format 'other' in '{path}')"
    path.write_bytes(whole)
    rewrite(path, solution=None)
    assert message() == f"{ours}a damaged header in '{path}')"
    path.write_bytes(whole)
    objects = dict.fromkeys(["link", "solver"])
    record = {"family": "distance", "kind": "os.system", "config": {}}
    rewrite(path, objects={**objects, "distance": record})
    with pytest.raises(ValueError, match="must be given") as caught:
        GLIFPostProcessor.load(path)
    assert str(caught.value) == (
        "'distance' must be given, because the file names the class 'os.system', which "
        "is not registered. Use "
        "load(path, distance=...) or 'pyg_glif.registry.register'"
    )
    post = GLIFPostProcessor.load(path, distance=Euclidean())
    assert type(post.distance) is Euclidean
    with pytest.raises(FileNotFoundError, match="nothing"):
        GLIFPostProcessor.load(tmp_path / "nothing")
    with pytest.raises(IsADirectoryError):
        GLIFPostProcessor.load(tmp_path)


def state(post: GLIFPostProcessor) -> list[object]:
    """Everything that a fit consists of, for comparison."""
    graph, solution = post.graph_, post.solution_
    tensors = [
        post.y_fair_,
        graph.edge_index,
        graph.edge_weight,
        graph.edge_sq_dist,
        solution.residual,
        solution.error_bound,
        post.fit_.x,
        post.fit_.y_hat,
        *(post.distance.state_dict().values() if post.distance is not None else ()),
    ]
    plain = {k: repr(v) for k, v in post.get_params().items()}
    names = getattr(post, "feature_names_in_", np.array([])).tolist()
    report = (solution.status, solution.num_iter, solution.solver)
    scale = post.similarity_.scale
    tensors += [] if scale is None else [scale]
    parts = [(str(t.dtype), t.shape, t.numpy().tobytes()) for t in tensors]
    return [plain, post.tau_, post.theta_, names, report, post.metadata_, *parts]


def damaged(whole: bytes, generator: np.random.Generator) -> bytes:
    """The file with one kind of damage: flipped bits, a lost end, noise, a shift."""
    out, kind = bytearray(whole), generator.integers(5)
    # Half of all damage goes to the header, where the settings are.
    size = (
        len(out) if generator.random() < 0.5 else 8 + int.from_bytes(out[:8], "little")
    )
    at = int(generator.integers(size))
    if kind <= 1:
        out[at] ^= 1 << int(generator.integers(8))
    elif kind == 2:
        for place in generator.integers(size, size=int(generator.integers(2, 9))):
            out[place] ^= 1 << int(generator.integers(8))
    elif kind == 3:
        del out[at : at + int(generator.integers(1, 2 * len(out)))]
    else:
        noise = generator.bytes(int(generator.integers(1, 20)))
        out[at : at + len(noise) * int(generator.integers(2))] = noise
    return bytes(out)


def test_no_damaged_file_loads_with_other_content(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    whole = (GOLDEN / "nearest.safetensors").read_bytes()
    path = tmp_path / "fit"
    path.write_bytes(whole)
    expected = state(GLIFPostProcessor.load(path))
    refused = 0
    for _ in range(3000):
        path.write_bytes(damaged(whole, generator))
        try:
            post = GLIFPostProcessor.load(path)
        except DamagedFileError:
            refused += 1
        else:
            assert state(post) == expected
    assert refused > 2900  # blanks and the like may change without effect


@pytest.mark.parametrize("rule", ["radius", "nearest"])
def test_files_written_elsewhere_load(
    rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The default may change; what was fitted does not.
    monkeypatch.setattr("pyg_glif.graph.weights.DECAY", 9.0)
    monkeypatch.setattr("pyg_glif.fit.settings.DECAY", 9.0)
    post = GLIFPostProcessor.load(GOLDEN / f"{rule}.safetensors")
    records = json.loads((GOLDEN / "fits.json").read_text())
    record = records[rule]
    asked = {"radius": (1.2, None, None), "nearest": (2.5, None, 3)}[rule]
    assert (post.tau, post.theta, post.k) == asked
    assert (post.tau_, post.theta_) == (record["tau"], record["theta"])
    if rule == "radius":
        assert post.theta_ == pytest.approx(record["decay"] / 1.2**2)
    x_new, y_new = (
        torch.tensor(records[name], dtype=torch.float32).numpy()
        for name in ("x_new", "y_hat_new")
    )
    new = Frame(x_new, ["age", "income", "rate"]), Frame(y_new, ["no", "yes"])
    near = {"rtol": 1e-6, "atol": 1e-7}
    found = {
        "y_fair": post.y_fair_,
        "edge_weight": post.graph_.edge_weight,
        "transform": post.transform(*new).to_numpy(),
        "joint": post.transform(*new, joint=True).to_numpy(),
    }
    for name, value in found.items():
        np.testing.assert_allclose(value, record[name], **near, err_msg=name)


def test_metadata_comes_back(tmp_path: Path) -> None:
    metadata = {"model": "risk 3", "columns": {"features": ["a"]}, "n": 7}
    people().fit().save(tmp_path / "fit", metadata=metadata)
    assert GLIFPostProcessor.load(tmp_path / "fit").metadata_ == metadata
    with pytest.raises(TypeError, match="'metadata' must be plain data"):
        people().fit().save(tmp_path / "other", metadata={"x": torch.zeros(1)})
    assert [path.name for path in tmp_path.iterdir()] == ["fit"]


def test_a_loaded_fit_does_not_hang_on_its_file(tmp_path: Path) -> None:
    post = people().fit(distance=Mahalanobis(SIGMA.double()))
    path = tmp_path / "fit"
    post.save(path)
    other = GLIFPostProcessor.load(path)
    before = state(other)
    with open(path, "r+b") as file:  # in place, as a copying program does it
        file.write(b"\0" * path.stat().st_size)
    assert state(other) == before
    path.write_bytes(b"")
    assert state(other) == before


def test_symbolic_links_are_followed(tmp_path: Path) -> None:
    post = people().fit()
    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "there" / "fit")
    post.save(tmp_path / "link")
    post.save(tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert [path.name for path in (tmp_path / "there").iterdir()] == ["fit"]
    assert (
        state(GLIFPostProcessor.load(tmp_path / "there" / "fit"))[1:]
        == (state(post)[1:])
    )


def test_permissions_stay(tmp_path: Path) -> None:
    post, path = people().fit(), tmp_path / "fit"
    post.save(path)
    path.chmod(0o640)
    post.save(path)
    assert path.stat().st_mode & 0o777 == 0o640


def test_missing_folder(tmp_path: Path) -> None:
    path = tmp_path / "nowhere" / "fit"
    with pytest.raises(FileNotFoundError) as caught:
        people().fit().save(path)
    assert caught.value.filename == str(path)


def test_full_disk(tmp_path: Path) -> None:
    resource = pytest.importorskip("resource")
    path, post = tmp_path / "fit", people().fit()
    path.write_bytes(b"what was there")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        # Room for the header, but not for all tensors.
        resource.setrlimit(resource.RLIMIT_FSIZE, (3000, hard))
        with pytest.raises(OSError, match="File too large") as caught:
            post.save(path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert caught.value.filename == str(path)
    assert path.read_bytes() == b"what was there"
    assert [path.name for path in tmp_path.iterdir()] == ["fit"]


def start(work: Callable[[], None]) -> Any:
    """A second process with what this one has in memory."""
    if "fork" not in multiprocessing.get_all_start_methods():
        pytest.skip("needs processes that fork")
    process = multiprocessing.get_context("fork").Process(target=work)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        process.start()
    return process


def test_what_a_killed_process_leaves_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    post, path = people().fit(), tmp_path / "fit"
    write, written = _persistence._write, multiprocessing.get_context("fork").Event()

    def slow(file: Any, *args: Any) -> None:
        write(file, *args)
        file.flush()
        written.set()
        time.sleep(600)

    with monkeypatch.context() as patch:
        patch.setattr(_persistence, "_write", slow)
        writer = start(lambda: post.save(path))
    try:
        assert written.wait(60)
        (part,) = tmp_path.iterdir()
        assert part.name.startswith(".fit.")
        assert part.name.endswith(".part")
        # Somebody else's unfinished file stays as long as they live.
        post.save(path)
        assert sorted(tmp_path.iterdir()) == sorted([path, part])
    finally:
        writer.kill()
        writer.join()
    post.save(tmp_path / "other")
    assert part.exists()  # what belongs to another path is not ours to remove
    post.save(path)
    assert {path.name for path in tmp_path.iterdir()} == {"fit", "other"}


def test_threads_and_processes_save_to_one_path(tmp_path: Path) -> None:
    path = tmp_path / "fit"
    posts = [people().fit(lam=float(lam)) for lam in range(4)]
    known = [state(post)[1:] for post in posts]
    posts[0].save(path)

    def work(post: GLIFPostProcessor, times: int = 20) -> None:
        for _ in range(times):
            post.save(path)
            assert state(GLIFPostProcessor.load(path))[1:] in known

    others = [start(lambda: [posts[3].save(path) for _ in range(40)]) for _ in "ab"]
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(work, posts[:3]))
    for other in others:
        other.join(60)
    assert [other.exitcode for other in others] == [0, 0]
    assert [path.name for path in tmp_path.iterdir()] == ["fit"]


@pytest.mark.parametrize("version", [0, -3, 1.0, 3.5, "1", True, None, [1]])
@pytest.mark.parametrize("rule", [{"tau": 0.9, "theta": 0.5}, {"tau": None, "k": 3}])
def test_other_versions_raise_one_kind_of_error(
    version: object, rule: dict[str, Any], tmp_path: Path
) -> None:
    path = tmp_path / "fit"
    people().fit(**{"theta": None, **rule}).save(path)
    rewrite(path, version=version)
    with pytest.raises(DamagedFileError, match="'path' must be a file that"):
        GLIFPostProcessor.load(path)


def layout_changed(whole: bytes, change: Callable[[dict[str, Any]], None]) -> bytes:
    """The file whose tensors are said to be elsewhere."""
    size = int.from_bytes(whole[:8], "little")
    layout = json.loads(whole[8 : 8 + size])
    change(layout)
    text = json.dumps(layout).encode()
    return len(text).to_bytes(8, "little") + text + whole[8 + size :]


def overlap(layout: dict[str, Any]) -> None:
    layout |= {f"x{number}": layout["x"] for number in range(300)}


def shift(layout: dict[str, Any]) -> None:
    for entry in layout.values():
        if "data_offsets" in entry:
            entry["data_offsets"] = [one + 8 for one in entry["data_offsets"]]


def enlarge(layout: dict[str, Any]) -> None:
    layout["x"] |= {"shape": [2**40], "data_offsets": [0, 2**43]}


@pytest.mark.parametrize("change", [overlap, shift, enlarge])
def test_tensors_that_are_not_side_by_side_take_no_memory(
    change: Callable[[dict[str, Any]], None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = tmp_path / "fit"
    people().fit().save(path)
    path.write_bytes(layout_changed(path.read_bytes(), change))

    def taken(*_: object, **__: object) -> None:
        raise AssertionError("memory is taken before the layout is checked")

    monkeypatch.setattr(torch, "empty", taken)
    with pytest.raises(DamagedFileError):
        GLIFPostProcessor.load(path)


def test_only_regular_files_are_replaced(tmp_path: Path) -> None:
    post, pipe, folder = people().fit(), tmp_path / "pipe", tmp_path / "folder"
    os.mkfifo(pipe)
    folder.mkdir()
    (tmp_path / "link").symlink_to(pipe)
    for name in ("pipe", "link"):
        message = f"'path' must be a regular file or none (got '{tmp_path / name}', "
        with pytest.raises(ValueError, match=re.escape(message)):
            post.save(tmp_path / name)
    with pytest.raises(IsADirectoryError) as caught:
        post.save(folder)
    assert caught.value.filename == str(folder)
    with pytest.raises(ValueError, match="'path' must be a regular file"):
        post.save("/dev/null")
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert {one.name for one in tmp_path.iterdir()} == {"pipe", "folder", "link"}


def test_forgetting_in_a_damaged_file_takes_no_memory(tmp_path: Path) -> None:
    path = tmp_path / "fit"
    path.write_bytes((2**60).to_bytes(8, "little") + b"{}")
    with pytest.raises(DamagedFileError):
        people().fit().forget([0], path=path)
