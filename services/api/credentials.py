"""Checks of credentials: tokens, sessions of the console, and JWTs of the identity provider."""

from __future__ import annotations

import hmac
from dataclasses import replace

from services.api.token_cache import TokenCache
from shared.domain.access import OWNER, Principal, RoleRule, Token, digest, granted, token_id
from shared.domain.errors import Forbidden, Invalid, NotFound, Unauthenticated
from shared.domain.sessions import LIFE, OVERLAP, Identity, Session, session_id
from shared.ports import Clock, IdentityProvider, SessionStore, TokenStore

UNKNOWN = "unknown token: send 'Authorization: Bearer TOKEN' with a valid token"
_ENDED = "this session has ended: sign in again"


class Credentials:
    """Returns the principal of a credential's text. Only its holder learns why it is no longer valid."""

    def __init__(
        self,
        bootstrap: str,
        tokens: TokenStore,
        sessions: SessionStore,
        clock: Clock,
        provider: IdentityProvider | None = None,
        rules: tuple[RoleRule, ...] = (),
    ) -> None:
        """`rules` give roles to the groups of the provider's identities."""
        if not bootstrap.strip():
            raise ValueError("the API needs a token that is not empty")
        self._bootstrap = digest(bootstrap.strip())
        self._tokens = TokenCache(tokens, clock)
        self._sessions = sessions
        self._clock = clock
        self._provider = provider
        self._rules = rules

    def is_bootstrap(self, token_digest: str) -> bool:
        return hmac.compare_digest(token_digest, self._bootstrap)

    def can_be_valid(self, text: str) -> bool:
        """Returns whether the text has the form of a credential, so that others need no lookup."""
        return token_id(text) is not None or self._is_jwt(text)

    def principal(self, text: str, again: bool = False) -> Principal:
        """Raises Unauthenticated, or Forbidden for an identity without a role. `again`: for a stream that began with this text, whose
        session may have been renewed since."""
        if session_id(text) is not None:
            session = self.session(text, again)
            return replace(self._of_session(session), renewable_at=session.renewable_at)
        id = token_id(text)
        if id is not None:
            return self._of_token(id, digest(text))
        if self._provider is not None and self._is_jwt(text):
            return self._of_identity(self._provider.identity(text))
        raise Unauthenticated("unknown", UNKNOWN)

    def session(self, text: str, again: bool = False) -> Session:
        """Returns the session with this secret, and records the first use of a renewed secret."""
        id, used, now = session_id(text), digest(text), self._clock.now()
        try:
            session = self._sessions.get(id or "")
        except NotFound:
            raise Unauthenticated("unknown", _ENDED) from None
        if not (session.is_alive(now) if again else session.accepts(used, now)):
            raise Unauthenticated("expired", _ENDED)
        if used == session.digest and session.previous_digest is not None and session.previous_until is None:
            self._sessions.confirm(session.id, used, now + OVERLAP)
        return session

    def new_session(self, text: str, nonce: str | None, id: str, session_digest: str) -> Session:
        """Returns a session for the holder of a token or a JWT. Raises Invalid for a session: it cannot prolong itself."""
        now = self._clock.now()
        is_bootstrap = self.is_bootstrap(digest(text))
        if self._provider is not None and self._is_jwt(text) and not is_bootstrap:
            identity = self._provider.identity(text, nonce)
            # An ID token is short, but proves a sign-in. Any other JWT must not become a credential that outlives it.
            expires_at = now + LIFE if nonce is not None else min(now + LIFE, identity.expires_at)
            return Session(id, session_digest, now, expires_at, token_id=identity.subject_id, identity=identity)
        principal = OWNER if is_bootstrap else self.principal(text)
        if session_id(text) is not None:
            raise Invalid("a session cannot create a session: send a token or a JWT")
        expires_at = min(now + LIFE, principal.expires_at or now + LIFE)
        return Session(id, session_digest, now, expires_at, token_id=principal.token_id, token_digest=digest(text))

    def _is_jwt(self, text: str) -> bool:
        return self._provider is not None and text.count(".") == 2

    def _of_session(self, session: Session) -> Principal:
        if session.identity is not None:
            return self._of_identity(session.identity)
        if session.token_id == OWNER.token_id:
            if not self.is_bootstrap(session.token_digest or ""):
                raise Unauthenticated("revoked", _ENDED)
            return OWNER
        return self._of_token(session.token_id or "", session.token_digest or "")

    def _of_token(self, id: str, token_digest: str) -> Principal:
        try:
            token: Token = self._tokens.get(id)
        except NotFound:
            raise Unauthenticated("unknown", UNKNOWN) from None
        if not hmac.compare_digest(token_digest, token.digest):
            raise Unauthenticated("unknown", UNKNOWN)
        refused = token.refusal(self._clock.now())
        if refused is not None:
            raise Unauthenticated(refused.rsplit(" ", 1)[-1], f"this token {refused}: ask an admin for another")
        return token.principal

    def _of_identity(self, identity: Identity) -> Principal:
        grant = granted(self._rules, identity.groups)
        if grant is None:
            raise Forbidden(f"no group of '{identity.name}' has a role here: ask an admin, who sets roles of groups by EYAS_OIDC_ROLES")
        return Principal(identity.name, identity.subject_id, *grant, identity.expires_at, is_identity=True)
