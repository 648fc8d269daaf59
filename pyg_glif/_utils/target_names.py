"""Common names of target columns."""

import re

_OUTCOME = re.compile(
    "y|y_true|label|target|truth|outcome|response|decision|class_label|income|bad|"
    "good_bad|default(ed)?|repaid|paid_back|charged?_off|loan_status|credit_risk|"
    "accepted|admitted|approved|denied|granted|hired|rejected|converted|churn(ed)?|"
    "survived|(is_|two_year_)?recid(ivism|ivated)?"
)


def outcome_like(name: object) -> bool:
    """Whether a column has a common name of a target, in any case and spelling."""
    words = re.sub(r"[\W_]+", "_", str(name).lower()).strip("_")
    return _OUTCOME.fullmatch(words) is not None
