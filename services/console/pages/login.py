"""Sign-in with a token, sign-out, and the choice of the theme."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from services.console.api import Api, ApiProblem
from services.console.page import Pages
from services.console.render import THEME, THEMES, PageFault, fault, onwards, page
from services.console.session import RejectedForm, SubmittedForm, can_be_token, forget, form_of, inside, keep

pages = Pages()


async def login(request: Request) -> Response:
    if request.method in ("GET", "HEAD"):
        return page(request, "login.html", next=inside(request.query_params.get("next", "/")), wrong="")
    try:
        form = await form_of(request, None)
    except RejectedForm as error:
        return fault(request, PageFault(403, "Form refused", str(error)))
    token, where = form["token"], inside(form["next"] or "/")
    wrong = ""
    if not can_be_token(token):
        wrong = "This is not a token: a token is one line of letters and digits."
    else:
        try:
            await Api(request.state.api, token).get("/v1/whoami")
        except ApiProblem as refused:
            wrong = "Unknown token." if refused.status == 401 else refused.detail
    if wrong:
        return page(request, "login.html", status=401, next=where, wrong=wrong)
    response = onwards(where)
    keep(request, response, token)
    return response


async def theme(request: Request) -> Response:
    try:
        form = await form_of(request, None)
    except RejectedForm as error:
        return fault(request, PageFault(403, "Form refused", str(error)))
    response = onwards(form["next"] or "/")
    if form["theme"] in THEMES:
        response.set_cookie(THEME, form["theme"], 365 * 86400, httponly=True, samesite="lax")
    else:
        response.delete_cookie(THEME)
    return response


pages.routes.append(Route("/login", login, methods=["GET", "POST"]))
pages.routes.append(Route("/theme", theme, methods=["POST"]))


@pages.action("/logout")
async def logout(request: Request, api: Api, form: SubmittedForm) -> Response:
    response = onwards("/login")
    forget(request, response)
    return response
