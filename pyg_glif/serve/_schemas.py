"""Models of requests and responses; each fit describes its own requests."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    FiniteFloat,
    WithJsonSchema,
    create_model,
    model_validator,
)
from pydantic_core import PydanticCustomError

# Faults of one request that are reported, and characters of a name; more are cut.
_MOST, _LONGEST = 20, 100
# An id that the monitor takes, of bounded length.
_ID = Annotated[str, Field(min_length=1, max_length=200)]
# ISO 8601, written out: anything else that is read as a date, such as "now", is not.
_ISO = (
    r"^\d{4}-\d{2}-\d{2}"
    r"([T ]\d{2}:\d{2}(:\d{2}([.,]\d{1,9})?)?(Z|[+-]\d{2}(:?\d{2})?)?)?$"
)
_DATE = Annotated[str, Field(pattern=_ISO)]


@dataclass(frozen=True)
class ColumnForm:
    """A column of new samples, as forms and schemas need it."""

    name: str
    kind: str  # "number", "date", "duration" (days) or "category"
    counts: bool = True  # whether it is a feature
    nullable: bool = False
    values: tuple[Any, ...] = ()  # of categories, those of the fit


class FieldFault(BaseModel):
    """One fault of a request."""

    field: str = Field(description="Where, such as 'rows[0].age'.")
    loc: list[str | int] = Field(description="The same as a path.")
    msg: str = Field(description="What is expected there.")


class RequestFaults(BaseModel):
    """A request that cannot be used."""

    detail: list[FieldFault]


class Refusal(BaseModel):
    """Why there is no answer."""

    detail: str


class Corrected(BaseModel):
    """Corrected outputs of new samples, in the order of the request."""

    y_fair: list[float] | list[list[float]] = Field(
        description="Corrected outputs; a newcomer without peers keeps theirs."
    )
    num_neighbors: list[int] = Field(
        description="Fitted people who are similar. Where people are not shown, a "
        "lower bound: 0 if the correction is withheld, else the least number that a "
        "correction rests on."
    )
    withheld: list[bool] | None = Field(
        None,
        description="Where people are not shown: whether the output is the newcomer's "
        "own, because too few fitted people share the correction.",
    )
    certificate: dict[str, list[float]] = Field(
        description="What is certain about each correction, by name."
    )
    notes: list[str] = Field(description="What was odd about the people.")
    fit: str = Field(description="Which fit answered: the start of its SHA-256.")


class NamedNeighbor(BaseModel):
    """A fitted sample that contributes, and its share."""

    id: str
    share: float


class Explained(BaseModel):
    """Explanation of the correction of one new sample."""

    y_fair: list[float] | list[list[float]]
    text: str = Field(description="An explanation that names nobody.")
    own_share: float | None = Field(
        description="How much of the result is their own output. This and what follows "
        "is null where too few fitted people share it."
    )
    neighbors_share: float | None = Field(
        description="How much comes from people like them."
    )
    others_share: float | None = Field(
        description="How much comes from people like those."
    )
    num_neighbors: int | None = Field(
        description="Fitted people who are similar to them, where people are shown."
    )
    num_others: int | None = Field(
        description="Fitted people who are similar to those, where people are shown."
    )
    neighbors_mean: list[float] | None = Field(
        description="Average of the model's outputs for peers."
    )
    others_mean: list[float] | None = Field(description="Likewise for the others.")
    neighbors: list[NamedNeighbor] | None = Field(
        None, description="Only with 'names'."
    )
    notes: list[str]
    fit: str


class Health(BaseModel):
    """Whether the service runs."""

    status: str


class ColumnInfo(BaseModel):
    """A column of new samples."""

    name: str
    kind: str
    counts: bool = Field(description="Whether it says who is similar.")
    nullable: bool
    values: list[str | bool | int | float] = Field(description="Of categories.")


class Info(BaseModel):
    """The fit in use and the limits of the service."""

    version: str
    fit: str
    loaded_at: str
    reload_error: str | None
    num_people: int
    num_features: int
    num_outputs: int | None
    columns: list[ColumnInfo]
    unit: str
    tau: float | None
    k: int | None
    lam: float
    num_isolated: int
    max_rows: int
    max_bytes: int
    show_people: bool
    min_shared: int | None = Field(
        description="Fitted people that a correction rests on; null: any number."
    )
    resolution: float | None = Field(
        description="Steps in which answers are computed; null: they are exact."
    )


def request_models(
    columns: Sequence[ColumnForm],
    num_features: int,
    num_outputs: int | None,
    max_rows: int,
) -> tuple[type[BaseModel], type[BaseModel]]:
    """The models of requests to correct and to explain, for one fit."""
    forms = [{"required": ["x"]}]
    if columns:
        forms.append({"required": ["rows"]})
    extra: Any = {"oneOf": forms}
    # Nothing is guessed and nothing is left over.
    config = ConfigDict(extra="forbid", strict=True, json_schema_extra=extra)
    checks: Any = {"one_form": model_validator(mode="after")(_one_form)}
    correct = create_model(
        "Newcomers",
        __config__=config,
        __validators__=checks,
        **_sample_fields(columns, num_features, num_outputs, max_rows),
        ids=(
            _listed(_ID, 1, max_rows),
            Field(None, description="Names of the decisions, for the monitor."),
        ),
    )
    explain = create_model(
        "Explain",
        __config__=config,
        __validators__=checks,
        **_sample_fields(columns, num_features, num_outputs, 1),
        names=(bool, Field(False, description="Whether to name the peers.")),
        top=(int, Field(10, ge=1, le=100, description="Peers to name.")),
    )
    return correct, explain


def _sample_fields(
    columns: Sequence[ColumnForm], num_features: int, width: int | None, most: int
) -> dict[str, Any]:
    """The fields that describe samples."""
    number: Any = FiniteFloat
    row = _listed(number, num_features)
    y = number if width is None else _listed(number, width)
    fields: dict[str, Any] = {
        "x": (
            _listed(row, 1, most),
            Field(None, description="People as rows of the fit's coordinates."),
        ),
        "y_hat": (
            _listed(y, 1, most),
            Field(description="Outputs of the model for them."),
        ),
    }
    if columns:
        form = create_model(
            "Row",
            __config__=ConfigDict(extra="forbid", strict=True),
            **{f"c{k}": _cell(column) for k, column in enumerate(columns)},
        )
        fields["rows"] = (
            _listed(form, 1, most),
            Field(None, description="People by the columns of the table."),
        )
    return fields


def _listed(kind: Any, least: int, most: int | None = None) -> Any:
    """A list of a length in a range, or of one length."""
    most = least if most is None else most
    return Annotated[list[kind], Field(min_length=least, max_length=most)]


def _cell(column: ColumnForm) -> Any:
    """Type and field of one column."""
    name = column.name
    if not column.counts:
        anything = Annotated[Any, WithJsonSchema({})]
        return anything, Field(None, alias=name, description="Does not count.")
    words = {"date": "ISO 8601", "duration": "days"}.get(column.kind, column.kind)
    cell: Any = _DATE if column.kind == "date" else FiniteFloat
    if column.kind == "category":
        kinds: dict[Any, Any] = {bool: bool, float: FiniteFloat, str: str}
        cell = kinds.get(_common(column.values))
    if cell is None:
        cell = Annotated[Any, AfterValidator(_plain), WithJsonSchema(_ANY_CELL)]
    elif column.nullable:
        cell = cell | None
    return cell, Field(alias=name, description=words)


_ANY_CELL = {"type": ["string", "number", "boolean", "null"]}


def _common(values: Sequence[Any]) -> type | None:
    """The type that all values have, text if there are none."""
    kinds = {float if type(value) is int else type(value) for value in values}
    kinds = kinds or {str}
    return kinds.pop() if len(kinds) == 1 else None


def _plain(value: Any) -> Any:
    """A cell that is neither a list nor an object."""
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    raise _error("must be a text, a number or a truth value")


def _one_form(self: Any) -> Any:
    """Raises unless samples come in one form, and have an output each."""
    values = self.__dict__  # of attributes that are not there, pydantic makes a fuss
    forms = {name: values.get(name) for name in ("x", "rows")}
    sent = {name: value for name, value in forms.items() if value is not None}
    if len(sent) != 1:
        got = "both" if sent else "neither"
        raise _error(f"one of 'x' and 'rows' must be given (got {got})")
    ((name, samples),) = sent.items()
    if len(samples) != len(self.y_hat):
        got = f"{len(self.y_hat)} for {len(samples)}"
        raise _error(f"'y_hat' must have one entry per row of '{name}' (got {got})")
    ids = values.get("ids")
    if ids is not None and len(ids) != len(samples):
        got = f"{len(ids)} for {len(samples)}"
        raise _error(f"'ids' must have one entry per row of '{name}' (got {got})")
    return self


def _error(message: str) -> PydanticCustomError:
    """An error whose message is not a template."""
    return PydanticCustomError("samples", "{message}", {"message": message})


def resolved(value: Any, parts: Mapping[str, Any]) -> Any:
    """A JSON schema with its references replaced by what they refer to."""
    if isinstance(value, dict):
        if "$ref" in value:
            return resolved(parts[value["$ref"].rpartition("/")[2]], parts)
        return {key: resolved(inner, parts) for key, inner in value.items()}
    return [resolved(v, parts) for v in value] if isinstance(value, list) else value


def faults(errors: Sequence[Any]) -> dict[str, Any]:
    """Faults of a request, of errors of pydantic, without what was sent."""
    detail = [fault(error["loc"], error["msg"]) for error in errors[:_MOST]]
    if len(errors) > _MOST:
        detail.append(fault((), f"and {len(errors) - _MOST} more"))
    return {"detail": detail}


def refused(loc: Sequence[str | int], error: Exception) -> dict[str, Any]:
    """A refusal of the method, as the content of a response.

    Of an error in our words, only the condition: the value was sent.
    """
    match = re.match(r"('[^']*' must .*?)( \(got |$)", str(error), re.DOTALL)
    msg = "the fit cannot take this request" if match is None else match[1]
    return {"detail": [fault(loc, msg)]}


def fault(loc: Sequence[str | int], msg: str) -> dict[str, Any]:
    """One fault, with its place as a text."""
    text = ""
    loc = [part[:_LONGEST] if isinstance(part, str) else part for part in loc]
    for part in loc:
        text += f"[{part}]" if isinstance(part, int) else f".{part}"
    return {"field": text.lstrip("."), "loc": ["body", *loc], "msg": msg}
