"""What schemathesis can't read in the description: who is asking, that a stream has one name at least, and that names are
measured in bytes.

LOGIN is the object of a login, if the caller has one. The number of requests of each operation is written to COUNTS.
"""

import atexit
import json
import os
from collections import Counter
from urllib.parse import parse_qs, unquote, urlsplit

import schemathesis
from schemathesis.openapi.checks import RejectedPositiveData

LOGIN = json.loads(os.environ.get("LOGIN", "null"))
counts: Counter = Counter()


def as_list(value):
    return value if isinstance(value, list) else [value]


def names(case, url):
    """All names in a request, as they were sent."""
    parts = urlsplit(url)
    query = parse_qs(parts.query, errors="surrogatepass")
    found = [unquote(parts.path.removeprefix("/records/")), *query.get("event", []), *query.get("record", [])]
    # The shortest name of a record of a collection.
    found.extend(f"{collection}/0" for collection in query.get("collection", []))
    body = case.body.get("body") if isinstance(case.body, dict) else None
    for command in as_list(body):
        if isinstance(command, dict):
            for key in ("eventName", "rpcName", "recordName", "listName", "recordNames", "names"):
                found.extend(as_list(command.get(key)))
    return [name for name in found if isinstance(name, str)]


@schemathesis.hook
def filter_failure(context, failure, case, response):
    """OpenAPI counts characters where the server counts bytes: a name between the two is rightly refused."""
    if not isinstance(failure, RejectedPositiveData) or response.status_code != 400:
        return True
    length_max = case.operation.schema.raw_schema["components"]["schemas"]["Name"]["maxLength"]
    sent = names(case, response.request.url)
    return not any(len(name) <= length_max < len(name.encode("utf-8", "surrogatepass")) for name in sent)


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
    # An event arrives only when a client publishes it. A record arrives at once, so the request need not time out.
    if label == "GET /sse" and isinstance(case.query, dict) and not case.query.get("record"):
        case.query = {**case.query, "record": ["schemathesis"]}


@schemathesis.hook
def after_call(context, case, response):
    counts[case.operation.label] += 1


@atexit.register
def write_counts():
    with open(os.environ["COUNTS"], "w") as file:
        json.dump(counts, file)
