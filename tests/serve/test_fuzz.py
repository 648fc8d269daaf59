"""Requests that a machine makes up from the description of the service."""

from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode
from starlette.testclient import TestClient

from pyg_glif.serve import create_app
from tests.serve.conftest import HERE, QUIET

pytestmark = QUIET


def fuzz(app: Any, num_cases: int) -> dict[int, int]:
    """Asks made-up questions of every route; how often there was which status."""
    found: dict[int, int] = {}
    with TestClient(app, base_url=HERE) as client:
        schema = schemathesis.openapi.from_dict(client.get("/openapi.json").json())
        routes = [one.ok() for one in schema.get_all_operations()]
        posts = sum(route.method == "post" for route in routes)
        for route in routes:
            # Most questions where there is most to get wrong.
            count = num_cases // (2 * posts) if route.method == "post" else 2
            for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):

                @given(case=route.as_strategy(generation_mode=mode))
                @settings(
                    max_examples=count,
                    deadline=None,
                    derandomize=True,
                    database=None,
                    phases=[Phase.generate],
                    suppress_health_check=list(HealthCheck),
                )
                def run(case: Any) -> None:
                    parts = case.as_transport_kwargs(base_url=HERE)
                    parts.pop("cookies", None)
                    parts["content"] = parts.pop("data", None)
                    answer = client.request(**parts)
                    found[answer.status_code] = found.get(answer.status_code, 0) + 1
                    assert answer.status_code < 500, (case.method, answer.text)

                try:
                    run()
                except schemathesis.errors.SchemathesisError:
                    # A route that takes nothing has nothing to get wrong.
                    assert route.method == "get"
    return found


def test_made_up_requests_never_make_the_service_fail(
    table: tuple[Path, Path],
) -> None:
    found = fuzz(create_app(table[1], max_rows=5), 60)
    assert found[200] > 10
    assert found[422] > 10


@pytest.mark.slow
def test_a_thousand_made_up_requests(table: tuple[Path, Path]) -> None:
    found = fuzz(create_app(table[1], max_rows=5), 1000)
    assert sum(found.values()) >= 1000
