"""Drives a headless browser over a pair of pipes (the DevTools protocol), without a package or a port."""

import base64
import json
import os
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Literal

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def missing() -> str | None:
    """Why there is no browser to test with, if there is none."""
    if sys.platform == "win32":
        return "the browser's pipes are file descriptors, which Windows does not inherit"
    if not any(map(shutil.which, NAMES)):
        return f"no browser found, looked for {', '.join(NAMES)} (on Debian, as root: tests/system_packages.sh)"
    return None


with_browser = pytest.mark.skipif(missing() is not None, reason=str(missing()))


class Browser:
    """One page. Use it in a `with` block; nothing of it is left after that."""

    def __init__(self, folder: Path, size: tuple[int, int] = (1280, 900), dark: bool = False, cameras: int = 0) -> None:
        program = next(path for path in map(shutil.which, NAMES) if path)
        to_read, self._write = os.pipe()
        self._read, to_write = os.pipe()
        options = [
            "--headless=new",
            "--remote-debugging-pipe",
            "--no-sandbox",  # root has none
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--disable-background-networking",
            "--hide-scrollbars",
            f"--user-data-dir={folder}",
            f"--window-size={size[0]},{size[1]}",
            *(["--force-dark-mode"] if dark else []),
            # Cameras of green pictures with a moving disc, never those of this machine.
            f"--use-fake-device-for-media-stream=device-count={cameras}",
            "--use-fake-ui-for-media-stream",  # the user is not asked
        ]
        # The browser reads from descriptor 3 and writes to 4, whatever numbers ours have.
        script = f'exec "$0" "$@" 3<&{to_read} 4>&{to_write}'
        with (folder / "browser.log").open("wb") as log:
            self._process = subprocess.Popen(
                ["bash", "-c", script, program, *options],
                pass_fds=(to_read, to_write),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        os.close(to_read)
        os.close(to_write)
        self._count, self._rest, self._session = 0, b"", None
        self.complaints: list[str] = []  # errors and warnings of the console, and of the browser about the page
        self.requests: list[str] = []  # addresses that the page asked for

    def __enter__(self) -> "Browser":
        try:
            target = self._call("Target.createTarget", url="about:blank")["targetId"]
            self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
            for domain in ("Page", "Runtime", "Log", "Network"):
                self._call(f"{domain}.enable")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._session = None
            self._call("Browser.close")
            self._process.wait(10)
        except (OSError, EOFError, TimeoutError, subprocess.TimeoutExpired):
            os.killpg(self._process.pid, 9)
            self._process.wait()
        finally:
            os.close(self._write)
            os.close(self._read)

    def open(self, address: str) -> float:
        """Goes to a page and waits until its script has run; seconds that took."""
        start = time.monotonic()
        self._call("Page.navigate", url=address)
        while self.run("document.readyState") != "complete" or self.run("location.href") == "about:blank":
            time.sleep(0.01)
        return time.monotonic() - start

    def run(self, script: str) -> Any:
        """The value of an expression in the page."""
        answer = self._call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise AssertionError(f"{script}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def press(self, key: str, text: str = "") -> None:
        """A key that a person presses."""
        for kind in ("keyDown", "keyUp"):
            self._call("Input.dispatchKeyEvent", type=kind, key=key, **({"text": text} if kind == "keyDown" else {}))

    def mouse(
        self, kind: Literal["mouseMoved", "mouseDragged", "mousePressed", "mouseReleased"], x: float, y: float
    ) -> None:
        """Send a mouse event at a position in pixels of the window; dragged is moved with the button pressed."""
        button: dict[str, Any] = {} if kind == "mouseMoved" else {"button": "left", "clickCount": 1}
        if kind == "mouseDragged":
            button = {"button": "left", "buttons": 1}
        sent = "mouseMoved" if kind == "mouseDragged" else kind
        self._call("Input.dispatchMouseEvent", type=sent, x=x, y=y, **button)

    def touch(self, points: list[tuple[float, float]]) -> None:
        """Draw with a finger from one position to the next, in pixels of the window."""
        for number, (x, y) in enumerate(points):
            kind = "touchMove" if number else "touchStart"
            self._call("Input.dispatchTouchEvent", type=kind, touchPoints=[{"x": x, "y": y}])
        self._call("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])

    def resize(self, width: int, height: int, dark: bool = False) -> None:
        """The window's size in pixels, and which scheme its user prefers."""
        self._call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._call("Emulation.setEmulatedMedia", features=[scheme])

    def screenshot(self, path: Path) -> None:
        """Return a screenshot of the window, as PNG."""
        path.write_bytes(base64.b64decode(self._call("Page.captureScreenshot", format="png")["data"]))

    def _call(self, method: str, **params: Any) -> dict[str, Any]:
        self._count += 1
        message = {"id": self._count, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self._count:
                if "error" in answer:
                    raise AssertionError(f"{method}: {answer['error']}")
                return answer["result"]
            self._notice(answer)

    def _receive(self, timeout: float = 30.0) -> dict[str, Any]:
        end = time.monotonic() + timeout
        while b"\0" not in self._rest:
            if not select.select([self._read], [], [], max(0.0, end - time.monotonic()))[0]:
                raise TimeoutError(f"the browser did not answer for {timeout} s")
            piece = os.read(self._read, 1 << 20)
            if not piece:
                raise EOFError("the browser has ended")
            self._rest += piece
        message, _, self._rest = self._rest.partition(b"\0")
        return json.loads(message)

    def _notice(self, event: dict[str, Any]) -> None:
        method, params = event.get("method"), event.get("params", {})
        if method == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(params["exceptionDetails"]))
        elif method == "Log.entryAdded":
            self.complaints.append(params["entry"]["text"])
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
            self.complaints.append(json.dumps(params["args"]))
        elif method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
