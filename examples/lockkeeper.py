"""Locks of a Lockkeeper server for Python, with only the standard library.

    with Lock("mydatabase/mytest", wait="1h", note="nightly load test") as lock:
        work(lock.fence)             # a resource that remembers the highest fence refuses late holders
        lock.check()                 # raises Lost if the lock was lost

    python3 lockkeeper.py mydatabase/mytest make test     # runs a command while it holds the lock

LOCKKEEPER_HTTP names the server (http://127.0.0.1:7421), LOCKKEEPER_TOKEN has its token,
and of a command LOCKKEEPER_TTL says how many seconds the lock lives without a renewal (30).
"""

import json
import os
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
import uuid


class Taken(Exception):
    """The lock is taken, or the wait timed out."""


class Lost(Exception):
    """The hold has ended."""


class Refused(Exception):
    """The server refused the request, or could not be reached."""


def clock():
    """Seconds, on a clock that advances while the computer sleeps, if there is one."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()


class Lock:
    """A lock of a path, held within a with statement. wait is "forever", a duration such as
    "90s", or 0. Keyword arguments are further fields of POST /v1/claims: mode="shared", limit=3."""

    def __init__(self, path, wait="forever", ttl=30, server=None, token=None, **more):
        self.claims = (server or os.environ.get("LOCKKEEPER_HTTP", "http://127.0.0.1:7421")) + "/v1/claims"
        self.token = token or os.environ.get("LOCKKEEPER_TOKEN")
        self.body = dict(more, path=path, wait=wait, ttl=ttl)
        self.ttl = ttl
        self.claim = None
        self.lost = threading.Event()  # set when the lock is lost
        self.why = ""
        self._released = threading.Event()

    def __enter__(self):
        key = str(uuid.uuid4())  # a repeat after a lost answer finds the same claim
        make = lambda: self._ask("POST", "?poll=20", self.body, {"Idempotency-Key": key})
        wait = lambda: self._ask("POST", "/%s/renew?poll=20&change=%d" % (self.claim, self.change))
        try:
            self._take(*self._insist(make))
            while self.state == "waiting":
                self._take(*self._insist(wait))
        except BaseException:  # also KeyboardInterrupt: no caller waits any more
            self._release()
            raise
        self._beat = threading.Thread(target=self._keep, daemon=True)
        self._beat.start()
        return self

    def __exit__(self, *_):
        self._released.set()
        self._beat.join()
        self._release()

    def check(self):
        """Raises Lost if the lock may have ended. Another client can get it only after that."""
        if self.lost.is_set() or clock() >= self.deadline:
            raise Lost(self.why or "it was not renewed in time")

    def _release(self):
        try:
            if self.claim:
                self._ask("DELETE", "/" + self.claim)
        except OSError:
            pass  # the claim ends with its TTL

    def _take(self, sent, status, claim):
        """Applies an answer: the deadline counts from when the request was sent, less a margin."""
        if status >= 300:
            why = claim.get("reason") or claim.get("detail") or str(claim)
            raise {404: Lost, 409: Taken, 410: Lost}.get(status, Refused)(why)
        self.claim, self.state = claim["claim"], claim["state"]
        self.fence, self.change = claim.get("fence"), claim["change"]
        left = claim["ttl"]
        if "asked" in claim:  # the announced end, which no renewal moves
            left = min(left, claim["asked"].get("left", left))
        self.deadline = sent + left * 0.99 - 0.05

    def _keep(self):
        while not self._released.wait(min(self.ttl / 3, max(0, self.deadline - clock()))):
            if clock() >= self.deadline:
                return self._gone("it was not renewed in time")
            bound = max(0.1, min(5, self.deadline - clock()))
            try:
                self._take(*self._ask("POST", "/%s/renew?change=%d" % (self.claim, self.change), timeout=bound))
            except Lost as lost:
                return self._gone(str(lost))
            except (OSError, Refused):  # the next renewal may succeed
                self._released.wait(min(1, max(0, self.deadline - clock())))

    def _gone(self, why):
        self.why = why
        self.lost.set()

    def _insist(self, ask):
        """Repeats a request without an answer, until the TTL of a possible claim has passed."""
        until = clock() + self.ttl
        while True:
            try:
                sent, status, answer = ask()
                if status not in (429, 503) or "draining" in answer.get("type", "") or clock() > until:
                    return sent, status, answer
            except OSError as error:
                if clock() > until:
                    raise Refused(str(error)) from error
            time.sleep(1)

    def _ask(self, method, rest, body=None, headers=None, timeout=30):
        """Returns the time of sending, the status, and the JSON of the answer."""
        request = urllib.request.Request(self.claims + rest, method=method, headers=headers or {})
        if body is not None:
            request.data = json.dumps(body).encode()
            request.add_header("Content-Type", "application/json")
        if self.token:
            request.add_header("Authorization", "Bearer " + self.token)
        sent = clock()
        try:
            with urllib.request.urlopen(request, timeout=timeout) as answer:
                return sent, answer.status, json.loads(answer.read() or "{}")
        except urllib.error.HTTPError as refused:
            text = refused.read()
            try:
                return sent, refused.code, json.loads(text)
            except ValueError:
                return sent, refused.code, {"detail": text.decode(errors="replace")}


def main():
    if len(sys.argv) < 3:
        sys.exit("usage: lockkeeper.py PATH COMMAND [ARG...]")
    try:
        with Lock(sys.argv[1], ttl=float(os.environ.get("LOCKKEEPER_TTL", 30))) as lock:
            work = subprocess.Popen(sys.argv[2:], env=dict(os.environ, LK_FENCE=str(lock.fence)))
            while work.poll() is None:
                if lock.lost.wait(0.1):
                    work.terminate()
                    work.wait()
                    print("%s: the lock was lost: %s" % (sys.argv[1], lock.why), file=sys.stderr)
                    return 76
            return work.returncode if work.returncode >= 0 else 128 - work.returncode
    except (Taken, Lost, Refused) as error:
        print("%s: %s" % (sys.argv[1], error), file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
