"""Four rewards as they are often written. Each is wrong, and `oncurve audit` shows how: see docs/audit.md."""

import re
import sqlite3
import subprocess
import sys

DATABASE = """
CREATE TABLE cats (name TEXT, age INTEGER);
INSERT INTO cats VALUES ('Tom', 3), ('Mia', 5), ('Kit', 1), ('Kit', 4), ('Old', 12);
"""


def iou_by_search(task, text):
    """The IoU of the first four numbers that stand anywhere in the answer."""
    numbers = re.findall(r"-?\d+\.?\d*", text)
    if len(numbers) < 4:
        return 0.0
    ax1, ay1, ax2, ay2 = map(float, numbers[:4])
    bx1, by1, bx2, by2 = task["truth"]["box"]
    width, height = max(0.0, min(ax2, bx2) - max(ax1, bx1)), max(0.0, min(ay2, by2) - max(ay1, by1))
    union = (ax2 - ax1) * (ay2 - ay1) + (bx2 - bx1) * (by2 - by1) - width * height
    return width * height / union if union else 0.0


def substring(task, text):
    """1 where the right answer stands somewhere in the text."""
    truth = task["truth"]
    answer = truth.get("answer") or truth.get("choice") or str(truth.get("count"))
    return 1.0 if answer.lower() in text.lower() else 0.0


def row_sets(task, text):
    """1 where the query's rows, as a set, are those of the right query on one database."""
    database = sqlite3.connect(":memory:")
    database.executescript(DATABASE)
    try:
        found = set(database.execute(text).fetchall())
    except (sqlite3.Error, sqlite3.Warning):
        return 0.0
    return 1.0 if found == set(database.execute(task["truth"]["sql"]).fetchall()) else 0.0


def exit_code(task, text):
    """1 where a process that runs the answer, then the tests as assertions, ends with status 0."""
    truth = task["truth"]
    tests = [f"assert {truth['entry_point']}(*{test['args']!r}) == {test['result']!r}" for test in truth["tests"]]
    program = "\n".join([text, *tests])
    try:
        ended = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=2)
    except (subprocess.TimeoutExpired, ValueError, OSError):
        return 0.0
    return 1.0 if ended.returncode == 0 else 0.0
