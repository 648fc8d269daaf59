"""scikit-learn's own checks."""

import inspect
from typing import Any

import pytest
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.utils import estimator_checks

from pyg_glif.sklearn import GLIFClassifier, GLIFRegressor

if (
    "expected_failed_checks"
    not in inspect.signature(estimator_checks.parametrize_with_checks).parameters
):
    pytest.skip("these checks are those of scikit-learn 1.6", allow_module_level=True)

FOLDS = (
    "weights and repetitions divide people into other folds, so that out-of-fold "
    "predictions differ; who is repeated is also one's own neighbour"
)


def expected_failed_checks(estimator: Any) -> dict[str, str]:
    return {"check_sample_weight_equivalence_on_dense_data": FOLDS}


ESTIMATORS = [
    GLIFClassifier(LogisticRegression()),
    GLIFRegressor(Ridge(), lam=1.0),
]


@pytest.mark.filterwarnings("ignore")  # checks count on warnings that are shown
@estimator_checks.parametrize_with_checks(
    ESTIMATORS, expected_failed_checks=expected_failed_checks
)
def test_scikit_learn_checks(estimator: Any, check: Any) -> None:
    check(estimator)
