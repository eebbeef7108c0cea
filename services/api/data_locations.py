"""Checks a spec against this platform before any stage runs: where its data is, and whether its stages can run."""

from __future__ import annotations

from services.api.dependencies import ControlParts
from shared.contracts.spec import MAX_SPEC, RecommenderSpec
from shared.domain.errors import EyasError, Invalid


def check_spec(parts: ControlParts, spec: RecommenderSpec) -> None:
    """Rejects stages that cannot run here, and data that no stage would read wherever the files are."""
    if faults := parts.stage_faults(spec):
        refused = Invalid("; ".join(f"{field}: {fault}" for field, fault in faults.items()))
        refused.faults = tuple(faults.items())
        raise refused
    for field, place in spec.places().items():
        try:
            parts.check_place(place)
        except EyasError as error:
            raise _refusal(field, error) from None


def resolve_spec(parts: ControlParts, spec: RecommenderSpec) -> RecommenderSpec:
    """Checks a spec; returns it with the campaigns of the file that it names."""
    check_spec(parts, spec)
    uri = spec.serve.order.unread
    if uri is None:
        return spec
    try:
        return spec.with_campaigns(parts.read_file(uri, MAX_SPEC))
    except EyasError as error:
        raise _refusal("serve.order.campaigns", error) from None


def _refusal(field: str, error: EyasError) -> EyasError:
    refused = type(error)(f"{field}: {error}")
    refused.faults = ((field, str(error)),)
    return refused


def faults_of_places(parts: ControlParts, spec: RecommenderSpec, warm: bool = False) -> list[str]:
    """Returns which sources can't be read now. A warm run reads no interactions but the platform's own."""
    places = {field: place for field, place in spec.places().items() if not (warm and field.startswith("data.interactions"))}
    faults = [(field, parts.place_fault(place)) for field, place in places.items()]
    return [f"{field}: {fault}" for field, fault in faults if fault]
