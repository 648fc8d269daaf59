import hashlib
from pathlib import Path

import pytest
import torch

from pyg_glif._utils import fingerprints as _fingerprints


def test_of_file_is_what_sha256sum_prints(tmp_path: Path) -> None:
    data = bytes(range(256)) * 5000
    (tmp_path / "a").write_bytes(data)
    expected = hashlib.sha256(data).hexdigest()
    assert _fingerprints.of_file(tmp_path / "a") == expected


def test_of_plain_ignores_the_order_of_keys() -> None:
    first = _fingerprints.of_plain({"a": 1, "b": [2.5, None]})
    assert first == _fingerprints.of_plain({"b": [2.5, None], "a": 1})
    assert first != _fingerprints.of_plain({"b": [2.5, 0], "a": 1})


A = torch.arange(6, dtype=torch.float32)


@pytest.mark.parametrize(
    "other",
    [
        {"b": A},
        {"a": A.double()},
        {"a": A.view(torch.int32)},
        {"a": A.reshape(2, 3)},
        {"a": A.flip(0)},
        {"a": A, "b": A[:0]},
        {},
    ],
)
def test_of_tensors_tells_names_types_shapes_and_values(
    other: dict[str, torch.Tensor],
) -> None:
    assert _fingerprints.of_tensors(other) != _fingerprints.of_tensors({"a": A})


def test_of_tensors_sees_contents_alone() -> None:
    pair = {"a": A, "b": torch.ones(2, 3).t()}
    again = {"b": torch.ones(3, 2), "a": A.clone().requires_grad_()}
    assert _fingerprints.of_tensors(pair) == _fingerprints.of_tensors(again)
