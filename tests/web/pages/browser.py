"""A browser as far as pages need one: it keeps cookies, and sends forms with the form key of the last page."""

import re
from urllib.parse import urlencode

from tests.web.api_stage import ApiStage
from tests.web.stage import ADMIN, Answer

HTML = ("Accept", "text/html")
FORM = ("Content-Type", "application/x-www-form-urlencoded")
FORM_KEY = re.compile(r'name="form_key" value="([^"]+)"')


class Browser:
    """Keeps cookies as a browser does, and sends forms with the page's form key."""

    def __init__(self, api: ApiStage) -> None:
        self.api = api
        self.cookies: dict[str, str] = {}
        self.form_key = ""
        # Sent with every request.
        self.headers: list[tuple[str, str]] = []

    async def get(self, target: str) -> Answer:
        return await self._ask("GET", target)

    async def post(self, target: str, **fields: str) -> Answer:
        return await self._ask("POST", target, urlencode({"form_key": self.form_key, **fields}).encode())

    async def sign_in(self, token: str = ADMIN, **fields: str) -> Answer:
        """Sign in; returns the redirect to the page that was wanted, or the refusal."""
        answer = await self.post("/sign-in", token=token, **fields)
        if answer.status == 303:
            answer = await self.get(answer.headers["location"])
            await self.get("/")
        return answer

    async def _ask(self, method: str, target: str, body: bytes | None = None) -> Answer:
        headers = [HTML, *self.headers] + ([FORM] if body is not None else [])
        if self.cookies:
            headers.append(("Cookie", "; ".join(f"{name}={value}" for name, value in self.cookies.items())))
        answer = await self.api.stage.ask(method, target, token=None, headers=headers, body=body)
        for value in answer.headers.getlist("set-cookie"):
            name, _, rest = value.partition("=")
            content = rest.partition(";")[0]
            if "Max-Age=0" in value:
                self.cookies.pop(name, None)
            else:
                self.cookies[name] = content
        found = FORM_KEY.search(answer.text)
        self.form_key = found[1] if found else self.form_key
        return answer
