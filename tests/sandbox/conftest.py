"""What the sandbox's tests share."""

import os

import pytest

from oncurve.sandbox.box import Sandbox
from oncurve.sandbox.probes import report

RUN = """
def answer(request):
    names = {"FILES": FILES, "kill_others": kill_others, "close_channel": close_channel}
    exec(request["run"], names)
    return {"value": names.get("value")}
"""


@pytest.fixture(scope="session")
def bubblewrap():
    """Skips where bubblewrap does not hold, but never in CI."""
    if report().level not in ("bubblewrap", "vm") and not os.environ.get("CI"):
        pytest.skip(f"no bubblewrap: {report().missed['bubblewrap']}")


@pytest.fixture
def run(bubblewrap):
    """Runs code in a child of its own, and returns what it put into `value`."""

    def run(code: str, timeout_s: float = 10.0, **options):
        with Sandbox().open(RUN, **options) as child:
            return child.ask({"run": code}, timeout_s)["value"]

    return run
