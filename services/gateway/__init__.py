"""The only online door: chooses the version, scores, orders, and logs what was shown before anybody sees it."""

from services.gateway.event_intake import Feedback, Recorded
from services.gateway.gateway import Answer, Explained, Gateway, Question, Stores

__all__ = ["Answer", "Explained", "Feedback", "Gateway", "Question", "Recorded", "Stores"]
