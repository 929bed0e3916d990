"""What schemathesis can't read in the description: who is asking, and that a stream has one name at least.

LOGIN is the object of a login, if the caller has one. The number of requests of each operation is written to COUNTS.
"""

import atexit
import json
import os
from collections import Counter

import schemathesis

LOGIN = json.loads(os.environ.get("LOGIN", "null"))
counts: Counter = Counter()


@schemathesis.hook
def filter_case(context, case):
    """OpenAPI can't say "one of these two parameters"."""
    if case.operation.label != "GET /sse":
        return True
    query = case.query or {}
    return bool(query.get("event")) or bool(query.get("record"))


@schemathesis.hook
def before_call(context, case, kwargs):
    label = case.operation.label
    if LOGIN is not None and isinstance(case.body, dict):
        if label == "POST /api" and isinstance(case.body.get("authData", {}), dict):
            case.body = {**case.body, "authData": LOGIN}
        if label == "POST /api/auth":
            case.body = {**case.body, **LOGIN}
    # Events come when somebody publishes them. A record is told at once, so that the request need not time out.
    if label == "GET /sse" and isinstance(case.query, dict) and not case.query.get("record"):
        case.query = {**case.query, "record": ["schemathesis"]}


@schemathesis.hook
def after_call(context, case, response):
    counts[case.operation.label] += 1


@atexit.register
def write_counts():
    with open(os.environ["COUNTS"], "w") as file:
        json.dump(counts, file)
