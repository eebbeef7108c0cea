"""Where a spec's data lies, as the operator allows it and as this process sees it: what is said before any stage reads it."""

from __future__ import annotations

from services.api.parts import Parts
from shared.contracts.spec import RecommenderSpec
from shared.domain.errors import EyasError


def check_places(parts: Parts, spec: RecommenderSpec) -> None:
    """Refuses what no stage would read wherever the files are."""
    for field, place in spec.places().items():
        try:
            parts.check_place(place)
        except EyasError as error:
            refused = type(error)(f"{field}: {error}")
            refused.faults = ((field, str(error)),)
            raise refused from None


def faults_of_places(parts: Parts, spec: RecommenderSpec, warm: bool = False) -> list[str]:
    """Why there would be nothing to read just now. A warm run reads no interactions but the platform's own."""
    places = {field: place for field, place in spec.places().items() if not (warm and field.startswith("data.interactions"))}
    faults = [(field, parts.place_fault(place)) for field, place in places.items()]
    return [f"{field}: {fault}" for field, fault in faults if fault]
