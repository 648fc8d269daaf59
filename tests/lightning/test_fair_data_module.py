"""FairDataModule: which rows, how often, in which order; the same every time."""

import re
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import Tensor
from torch.utils.data import DataLoader
from torch_geometric.data import Data

from pyg_glif.lightning import FairDataModule
from tests.lightning.conftest import TrainerFactory, make_model


def epochs(loader: DataLoader[Any], count: int) -> list[list[list[int]]]:
    return [[index.tolist() for _, _, index in loader] for _ in range(count)]


def rows_of(loader: Any) -> list[int]:
    return [int(i) for _, _, index in loader for i in index]


def test_batches_are_rows_of_the_data(samples: Data) -> None:
    module = FairDataModule(samples, batch_size=16)
    for loader in (
        module.train_dataloader(),
        module.test_dataloader(),
        module.predict_dataloader(),
    ):
        assert len(loader) == len(list(loader))
        for x, y, index in loader:
            assert len(index) <= 16
            assert torch.equal(x, samples.x[index])
            assert torch.equal(y, samples.y[index])


def test_every_split_has_its_rows_once(samples: Data) -> None:
    module = FairDataModule(samples, batch_size=16)
    train = rows_of(module.train_dataloader())
    assert sorted(train) == samples.train_mask.nonzero().flatten().tolist()
    assert train != sorted(train)
    val, test = rows_of(module.val_dataloader()), rows_of(module.test_dataloader())
    assert val == samples.val_mask.nonzero().flatten().tolist()
    assert test == samples.test_mask.nonzero().flatten().tolist()
    assert rows_of(module.predict_dataloader()) == list(range(100))


def test_without_a_train_mask_all_rows_are_trained_on(samples: Data) -> None:
    del samples.train_mask
    module = FairDataModule(samples, batch_size=16)
    assert sorted(rows_of(module.train_dataloader())) == list(range(100))


def test_steps_per_epoch_goes_around_again(samples: Data) -> None:
    module = FairDataModule(samples, batch_size=20, steps_per_epoch=7)
    loader = module.train_dataloader()
    (batches,) = epochs(loader, 1)
    assert len(loader) == len(batches) == 7
    rows = samples.train_mask.nonzero().flatten().tolist()
    for start in (0, 3):
        seen = [row for batch in batches[start : start + 3] for row in batch]
        assert sorted(seen) == rows


@settings(deadline=None, max_examples=30)
@given(
    sizes=st.lists(st.integers(1, 30), min_size=2, max_size=4),
    per_class=st.integers(1, 9),
    seed=st.integers(0, 2**31),
)
def test_balanced_batches_are_balanced(
    sizes: list[int], per_class: int, seed: int
) -> None:
    y = torch.cat([torch.full((size,), 2 * c) for c, size in enumerate(sizes)])
    y = torch.cat([y, torch.tensor([-1])])
    data = Data(x=torch.zeros(len(y), 1), y=y)
    module = FairDataModule(
        data, batch_size=per_class * len(sizes), balanced=True, seed=seed
    )
    for _, label, index in module.train_dataloader():
        assert torch.equal(label, y[index])
        counts = torch.bincount(label, minlength=2 * len(sizes))[::2]
        assert counts.tolist() == [per_class] * len(sizes)


def test_balanced_batches_draw_all_rows_alike(samples: Data) -> None:
    module = FairDataModule(
        samples, batch_size=600, balanced=True, steps_per_epoch=50, seed=3
    )
    count = torch.zeros(100)
    for _, _, index in module.train_dataloader():
        count += torch.bincount(index, minlength=100)
    assert bool((count[~samples.train_mask] == 0).all())
    for c in range(3):
        of_class = count[samples.train_mask & (samples.y == c)]
        mean = 10_000 / len(of_class)
        # Six standard deviations of a binomial count.
        assert float((of_class - mean).abs().max()) < 6 * mean**0.5


def test_unlabelled_rows_join_balanced_batches() -> None:
    y = torch.tensor([0, 0, 0, 1, -1, -1])
    data = Data(x=torch.zeros(6, 1), y=y)
    module = FairDataModule(
        data, batch_size=4, balanced=True, num_unlabelled=3, steps_per_epoch=20
    )
    drawn = set()
    for _, label, index in module.train_dataloader():
        assert label.tolist() == [0, 0, 1, 1, -1, -1, -1]
        drawn |= set(index[4:].tolist())
    assert drawn == {4, 5}


def test_unlabelled_rows_must_be_there_and_wanted(samples: Data) -> None:
    message = "'num_unlabelled' must be 0 unless 'balanced' is true (got 2)"
    with pytest.raises(ValueError, match=re.escape(message)):
        FairDataModule(samples, num_unlabelled=2)
    samples.y = samples.y.clamp(min=0)
    module = FairDataModule(samples, batch_size=6, balanced=True, num_unlabelled=2)
    with pytest.raises(
        ValueError, match="'num_unlabelled' must be 0 if every training row"
    ):
        module.train_dataloader()


@pytest.mark.parametrize("balanced", [False, True])
def test_seed_and_epoch_settle_the_batches(samples: Data, balanced: bool) -> None:
    def draw(seed: int, count: int = 3) -> list[list[list[int]]]:
        module = FairDataModule(samples, batch_size=6, balanced=balanced, seed=seed)
        return epochs(module.train_dataloader(), count)

    assert draw(5) == draw(5)
    drawn = draw(5) + draw(6)
    assert all(a != b for i, a in enumerate(drawn) for b in drawn[:i])
    loader = FairDataModule(
        samples, batch_size=6, balanced=balanced, seed=5
    ).train_dataloader()
    loader.sampler.set_epoch(2)
    assert epochs(loader, 1)[0] == drawn[2]


def test_global_randomness_is_unchanged(samples: Data) -> None:
    state = torch.get_rng_state()
    for balanced in (False, True):
        module = FairDataModule(samples, batch_size=6, balanced=balanced)
        list(module.train_dataloader())
    assert torch.equal(torch.get_rng_state(), state)


def one(shape: tuple[int, ...]) -> Tensor:
    return torch.ones(shape)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"x": None}, ValueError, "'data' must have the attribute 'x' (got "),
        ({"y": None}, ValueError, "'data' must have the attribute 'y' (got "),
        ({"x": one((100,))}, ValueError, "'x' must be 2-dimensional"),
        ({"x": one((100, 2)) / 0}, ValueError, "'x' must be finite (got inf at"),
        ({"y": one((100,))}, TypeError, "'y' must hold whole numbers (got torch.fl"),
        (
            {"y": one((100, 1)).long()},
            ValueError,
            "'y' must have one entry per row (got shape (100, 1) for 100)",
        ),
    ],
)
def test_bad_data_is_refused(
    change: dict[str, Any], error: type[Exception], message: str, samples: Data
) -> None:
    for key, value in change.items():
        if value is None:
            del samples[key]
        else:
            samples[key] = value
    with pytest.raises(error, match=re.escape(message)):
        FairDataModule(samples)


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"batch_size": 0}, "'batch_size' must be at least 1 (got 0)"),
        ({"steps_per_epoch": 0}, "'steps_per_epoch' must be at least 1 (got 0)"),
        ({"seed": -1}, "'seed' must be at least 0 (got -1)"),
        (
            {"batch_size": 1000, "balanced": True},
            "'batch_size' must be a multiple of the number of classes, 3 (got 1000)",
        ),
    ],
)
def test_bad_settings_are_refused(
    kwargs: dict[str, Any], message: str, samples: Data
) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        FairDataModule(samples, **kwargs).train_dataloader()


def test_one_class_cannot_be_balanced(samples: Data) -> None:
    samples.y = torch.zeros(100, dtype=torch.long)
    message = "'y' must take at least two values (got [0] only)"
    with pytest.raises(ValueError, match=re.escape(message)):
        FairDataModule(samples, balanced=True).train_dataloader()


def test_bad_masks_are_refused(samples: Data) -> None:
    samples.train_mask = torch.zeros(100, dtype=torch.bool)
    samples.val_mask = torch.arange(10)
    del samples.test_mask
    module = FairDataModule(samples)
    with pytest.raises(ValueError, match="'train_mask' must select at least one row"):
        module.train_dataloader()
    with pytest.raises(TypeError, match="'val_mask' must hold truth values"):
        module.val_dataloader()
    message = "'data' must have the attribute 'test_mask' (got 'train_mask'"
    with pytest.raises(ValueError, match=re.escape(message)):
        module.test_dataloader()


def test_other_things_than_data_are_refused() -> None:
    with pytest.raises(TypeError, match=re.escape("'data' must be a Data (got list)")):
        FairDataModule([1])


def test_several_processes_are_refused(samples: Data) -> None:
    module = FairDataModule(samples)
    module.trainer = SimpleNamespace(world_size=2)  # type: ignore[assignment]
    message = (
        "'FairDataModule' must run in one process (got 2). Pass 'devices=1' to the "
    )
    with pytest.raises(ValueError, match=re.escape(message)):
        module.setup("fit")


@pytest.mark.lightning
def test_validation_without_a_mask(samples: Data, make_trainer: TrainerFactory) -> None:
    from pyg_glif.lightning import FairClassifier

    del samples.val_mask
    module = FairDataModule(samples)
    trainer = make_trainer()
    trainer.fit(FairClassifier(make_model()), module)  # no warning
    assert trainer.current_epoch == 2
    message = "'data' must have the attribute 'val_mask'"
    with pytest.raises(ValueError, match=re.escape(message)):
        trainer.validate(FairClassifier(make_model()), module, verbose=False)


def test_the_whole_data_may_be_the_batch(samples: Data) -> None:
    module = FairDataModule(samples, batch_size=None, steps_per_epoch=3)
    assert [batch is samples for batch in module.train_dataloader()] == [True] * 3
    loaders = module.val_dataloader(), module.test_dataloader()
    for loader in (*loaders, module.predict_dataloader()):
        assert isinstance(loader, DataLoader)
        assert [batch is samples for batch in loader] == [True]
    message = "'balanced' must be false if a batch is the whole 'data' (got True)"
    with pytest.raises(ValueError, match=re.escape(message)):
        FairDataModule(samples, batch_size=None, balanced=True)
