"""What must not happen on any page: an error on the console, a breach of the policy, an alert, a 500."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext, ConsoleMessage, Dialog, Error, Page, Response


class Watch:
    """Looks at every page of a context, and remembers what went wrong there."""

    def __init__(self, context: BrowserContext) -> None:
        self.found: list[str] = []
        #: Answers that the test asks for, such as 403: the browser writes those on the console, too.
        self.expected: set[int] = set()
        context.on("page", self._see)

    def _see(self, page: Page) -> None:
        page.on("console", self._console)
        page.on("pageerror", self._error)
        page.on("dialog", self._dialog)
        page.on("response", self._response)

    def _console(self, message: ConsoleMessage) -> None:
        # A breach of the Content-Security-Policy comes as an error here, too.
        answer = any(f"status of {code} " in message.text for code in self.expected)
        place = str(message.location.get("url"))
        if message.type in ("error", "assert") and not answer and not place.endswith("/favicon.ico"):
            self.found.append(f"console: {message.text} ({place})")

    def _error(self, error: Error) -> None:
        self.found.append(f"script error: {error.message}\n{error.stack or ''}")

    def _dialog(self, dialog: Dialog) -> None:
        self.found.append(f"{dialog.type}: {dialog.message}")
        dialog.dismiss()

    def _response(self, response: Response) -> None:
        if (
            response.status >= 400
            and not response.url.endswith("/favicon.ico")
            and response.status not in self.expected
        ):
            self.found.append(f"{response.status} {response.request.method} {response.url}")

    def take(self) -> list[str]:
        """What it has found so far, and forget it."""
        found, self.found = self.found, []
        return found
