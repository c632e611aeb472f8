"""A small client of the DevTools protocol over Chromium's debugging pipe: opens a file and records its behaviour."""

import itertools
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--remote-debugging-pipe",
)
# Chromium reads from file descriptor 3 and answers on 4. A second Python process moves the pipes there: forking this
# process is not safe while JAX runs threads.
START = """
import fcntl, os, sys
ask, answer = (fcntl.fcntl(int(end), fcntl.F_DUPFD, 10) for end in sys.argv[1:3])  # not 3 or 4
os.dup2(ask, 3), os.dup2(answer, 4)
os.execv(sys.argv[3], sys.argv[3:])
"""
TIMEOUT = 60.0  # seconds, for one answer


class Browser:
    """One tab of a new Chromium; `problems` and `requests` belong to the page that was opened last."""

    def __enter__(self):
        self.profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        (ask, self.write), (self.read, answer) = os.pipe(), os.pipe()
        start = [sys.executable, "-c", START, str(ask), str(answer)]
        command = [*start, CHROMIUM, *FLAGS, f"--user-data-dir={self.profile.name}", "about:blank"]
        quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        own = {**os.environ, "TMPDIR": self.profile.name}
        self.process = subprocess.Popen(command, **quiet, pass_fds=(ask, answer), env=own)
        os.close(ask)
        os.close(answer)
        self.numbers, self.buffer, self.session = itertools.count(1), b"", None
        self.events = []
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(f"{domain}.enable")
        return self

    def __exit__(self, *problem):
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self.write)
        os.close(self.read)
        self.profile.cleanup()

    def ask(self, method, **parameters):
        number = next(self.numbers)
        message = {"id": number, "method": method, "params": parameters}
        if self.session is not None:
            message["sessionId"] = self.session
        os.write(self.write, json.dumps(message).encode() + b"\0")
        answer = self._until(lambda message: message.get("id") == number)
        assert "error" not in answer, answer
        return answer["result"]

    def _until(self, wanted):
        end = time.monotonic() + TIMEOUT
        while True:
            while b"\0" in self.buffer:
                text, _, self.buffer = self.buffer.partition(b"\0")
                message = json.loads(text)
                self.events.append(message)
                if wanted(message):
                    return message
            ready, _, _ = select.select([self.read], [], [], max(0.0, end - time.monotonic()))
            assert ready, "the browser does not answer"
            self.buffer += os.read(self.read, 1 << 16)

    def open(self, path, width, scheme):
        """Open a file at this width and colour scheme, and record its problems and requests."""
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 500)
        self.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.events.clear()
        self.ask("Page.navigate", url=path.resolve().as_uri())
        if not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self._until(lambda event: event.get("method") == "Page.loadEventFired")

    @property
    def problems(self):
        """Messages of the console, exceptions, and dialogues that a script opened."""
        methods = (
            "Log.entryAdded",
            "Runtime.consoleAPICalled",
            "Runtime.exceptionThrown",
            "Page.javascriptDialogOpening",
        )
        return [event for event in self.events if event.get("method") in methods]

    @property
    def requests(self):
        sent = [event for event in self.events if event.get("method") == "Network.requestWillBeSent"]
        return [event["params"]["request"]["url"] for event in sent]

    def value(self, expression):
        answer = self.ask("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")
