"""Which of Lightning's two packages is used."""

import sys
from importlib.util import module_from_spec, spec_from_file_location
from types import ModuleType

import pytest
import pytorch_lightning

from pyg_glif.lightning import resolve

NAMES = ["Callback", "LightningDataModule", "LightningModule", "Trainer"]


def load() -> ModuleType:
    """A fresh copy of the module, resolved with what is importable now."""
    spec = spec_from_file_location("resolved_again", resolve.__file__)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def fake(monkeypatch: pytest.MonkeyPatch, name: str) -> ModuleType:
    module = ModuleType(name)
    for base in NAMES:
        setattr(module, base, type(base, (), {}))
    monkeypatch.setitem(sys.modules, name, module)
    return module


def test_lightning_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lightning", ModuleType("lightning"))
    expected = fake(monkeypatch, "lightning.pytorch")
    fake(monkeypatch, "pytorch_lightning")
    module = load()
    assert sorted(module.__all__) == NAMES
    for name in NAMES:
        assert getattr(module, name) is getattr(expected, name)


@pytest.mark.parametrize("without", ["lightning", "lightning.pytorch"])
def test_pytorch_lightning_comes_second(
    without: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # 'lightning' without its part 'pytorch' is the old package of that name.
    if without == "lightning.pytorch":
        monkeypatch.setitem(sys.modules, "lightning", ModuleType("lightning"))
    monkeypatch.setitem(sys.modules, without, None)
    assert load().LightningModule is pytorch_lightning.LightningModule


def test_without_either_the_import_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("lightning", "lightning.pytorch", "pytorch_lightning"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match="pytorch_lightning"):
        load()
