"""What scikit-learn has called differently since 1.4."""

from typing import Any

import sklearn
from sklearn.utils import validation

try:
    from sklearn.frozen import FrozenEstimator
except ImportError:  # before 1.6
    FrozenEstimator = None


def is_frozen(estimator: Any) -> bool:
    """Whether a model is to be used as it is."""
    return FrozenEstimator is not None and isinstance(estimator, FrozenEstimator)


def routing_enabled() -> bool:
    """Whether metadata are handed on by request only."""
    return bool(sklearn.get_config().get("enable_metadata_routing"))


def traits(estimator: Any) -> tuple[bool, bool]:
    """Whether a model takes missing values, and whether it takes text."""
    if hasattr(sklearn.utils, "get_tags"):
        tags = sklearn.utils.get_tags(estimator).input_tags
        return tags.allow_nan, tags.string or tags.categorical
    tags = estimator._get_tags()  # before 1.6
    return tags["allow_nan"], bool({"string", "categorical"} & {*tags["X_types"]})


def check_names(host: Any, x: Any, *, reset: bool) -> None:
    """Notes, or compares, names and number of the columns of a frame."""
    if hasattr(validation, "validate_data"):
        validation.validate_data(host, x, reset=reset, skip_check_array=True)
    else:  # before 1.6
        host._validate_data(x, reset=reset, cast_to_ndarray=False)


def check_array(
    host: Any, x: Any, *, reset: bool, allow_nan: bool, dtype: str | None
) -> Any:
    """An array of people, checked, its columns counted or compared."""
    finite: Any = "allow-nan" if allow_nan else True
    if hasattr(validation, "validate_data"):
        return validation.validate_data(
            host, x, reset=reset, dtype=dtype, ensure_all_finite=finite
        )
    return host._validate_data(  # before 1.6
        x, reset=reset, dtype=dtype, force_all_finite=finite
    )
