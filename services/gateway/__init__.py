"""The gateway: chooses the version, retrieves, filters, scores, orders, and logs each impression before its answer goes out."""

from services.gateway.event_intake import EventIntake, IntakeResult
from services.gateway.gateway import Answer, Explained, Gateway, Question, Stores

__all__ = ["Answer", "EventIntake", "Explained", "Gateway", "IntakeResult", "Question", "Stores"]
