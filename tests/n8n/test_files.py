"""The shipped workflow files by themselves, without an n8n: what must hold for every request, that every failure gives
the lock back, and that the README tells the one table of error codes."""

import json
import re
from collections.abc import Mapping
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from tests.n8n.driver import COLLECT, COMMENTS, DISCOVER, ERRORS, RECOVER, SHIPPED
from tidings.collect.errors import RULES, Action, ErrorCode, next_delay

FILES = sorted(SHIPPED.glob("*.json"))
CREDENTIAL = {"httpHeaderAuth": {"id": "tidingsApiToken", "name": "Tidings API token"}}
DONE = {
    Action.PAUSE: "the execution skips the platform from then on",
    Action.SWITCH_COOKIE: "asked again with another cookie",
    Action.RETRY: "asked again",
    Action.RETRY_FAILED_ITEMS: "the failed items are asked again, each by its own code",
    Action.SKIP: "skipped",
    Action.STOP: "the execution ends as failed",
}

# Whose repetition would be counted.
COUNTED = ("/workflow/candidates", "/workflow/cookies/outcomes")
ONE_BY_ONE: Mapping[str, list[tuple[str, str]]] = {
    "discover": [("Report one by one", "Check each answer")],
    "collect": [("Settle one by one", "Find what is refused")],
    "comments": [],
}
REFUSED = {
    "discover": [("What next?", 2), ("Reported?", 2)],
    "collect": [("What next?", 3), ("Leased?", 2), ("Settled?", 2)],
    "comments": [("What next?", 2), ("Leased?", 2), ("Settled?", 3), ("Given up?", 1)],
}
LOOPS = {
    "discover": {"For each keyword", "One try"},
    "collect": {"Lease a batch", "One try"},
    "comments": {"Lease a page", "One try"},
}

each_file = pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)


def read_nodes(file: Path) -> dict[str, dict[str, Any]]:
    return {node["name"]: node for node in json.loads(file.read_text())["nodes"]}


def list_kind(file: Path, kind: str) -> list[dict[str, Any]]:
    return [node for node in read_nodes(file).values() if node["type"] == f"n8n-nodes-base.{kind}"]


def follow(file: Path, name: str, output: int = 0) -> list[str]:
    """The nodes that an output of a node leads to."""
    outputs = json.loads(file.read_text())["connections"].get(name, {"main": []})["main"]
    return [target["node"] for target in outputs[output]] if output < len(outputs) else []


def test_the_readme_tells_the_one_table_of_error_codes() -> None:
    """C15: whoever reads it reads what the API answers to the workflows."""
    rows = [line for line in (SHIPPED / "README.md").read_text().splitlines() if re.match(r"\| `[A-Z_]+` \|", line)]
    assert rows == [write_row(code) for code in RULES]


def write_row(code: ErrorCode) -> str:
    rule = RULES[code]
    delays = [next_delay(code, retry=retry) for retry in range(1, rule.most_retries + 1)]
    waits = ", ".join(f"{delay.total_seconds():g} s" for delay in delays if delay)
    return f"| `{code}` | {DONE[rule.action]} | {rule.most_retries} |{(' ' + (waits or 'none')) if delays else ''} |"


def test_each_file_has_a_name_that_stays() -> None:
    """C19: a second import updates instead of doubling, and failures find the workflow that tells of them."""
    documents = {file.stem: json.loads(file.read_text()) for file in FILES}
    ids = {"discover": DISCOVER, "collect": COLLECT, "comments": COMMENTS, "recover": RECOVER, "errors": ERRORS}
    assert {stem: document["id"] for stem, document in documents.items()} == ids
    assert {stem: document["name"] for stem, document in documents.items()} == {n: f"Tidings: {n}" for n in ids}
    settings = {stem: document["settings"] for stem, document in documents.items()}
    assert settings.pop("errors") == {"executionOrder": "v1"}
    assert set(map(str, settings.values())) == {str({"executionOrder": "v1", "errorWorkflow": ERRORS})}


@each_file
def test_each_workflow_starts_by_itself_and_by_hand_and_says_what_to_set(file: Path) -> None:
    assert len(list_kind(file, "errorTrigger" if file.stem == "errors" else "scheduleTrigger")) == 1
    assert len(list_kind(file, "manualTrigger")) == 1
    assert "What to set" in read_nodes(file)


@each_file
def test_every_request_is_known_authorised_bounded_and_read_whatever_its_status(file: Path) -> None:
    """C6, C13: the request id is n8n's, and the envelope of a 4xx or 5xx is read like any other."""
    requests = list_kind(file, "httpRequest")
    assert requests
    for node in requests:
        parameters = node["parameters"]
        assert parameters["url"].startswith("={{ $('Settings').first().json.base_url }}/"), node["name"]
        assert node["credentials"] == CREDENTIAL
        [header] = parameters["headerParameters"]["parameters"]
        assert (header["name"], header["value"].startswith("=n8n-{{ ")) == ("X-Request-ID", True)
        options = parameters["options"]
        assert options["response"]["response"] == {"fullResponse": True, "neverError": True}
        assert 30_000 <= options["timeout"] <= 90_000


@each_file
def test_a_file_holds_one_address_and_no_secret(file: Path) -> None:
    """C7: the token is in n8n's credential, and the address in one node."""
    text = file.read_text()
    assert re.findall(r"https?://[^\"\s]+", text) == ["http://127.0.0.1:8080"]
    assert re.findall(r"Bearer (?!`)|tid_|[Cc]ookie\":", text) == []


@each_file
def test_every_node_that_is_spoken_of_is_there(file: Path) -> None:
    nodes = read_nodes(file)
    document = json.loads(file.read_text())
    spoken = set(re.findall(r"\$\('([^']+)'\)", file.read_text())) | set(document["connections"])
    spoken |= {
        target["node"]
        for outputs in document["connections"].values()
        for output in outputs["main"]
        for target in output
    }
    assert spoken <= set(nodes)


@pytest.mark.parametrize("stem", REFUSED)
def test_whatever_fails_after_the_lock_is_taken_gives_it_back(stem: str) -> None:
    """C3: each step that can fail leads to the end that finishes as failed; so does each answer that says no."""
    file = SHIPPED / f"{stem}.json"
    fallible = {node["name"]: node for kind in ("httpRequest", "code") for node in list_kind(file, kind)}
    # Before the first there is nothing to give back, and after the last nothing is left to do.
    assert "onError" not in fallible.pop("Take the lock")
    assert fallible.pop("Finish as failed")["onError"] == "continueRegularOutput"
    # Of what is asked one by one, the next step looks at each answer.
    for each, judge in ONE_BY_ONE[stem]:
        assert (fallible.pop(each)["onError"], follow(file, each)) == ("continueRegularOutput", [judge])
    assert {node["onError"] for node in fallible.values()} == {"continueErrorOutput"}
    assert {tuple(follow(file, name, 1)) for name in fallible} == {("Find the reason",)}
    assert follow(file, "Find the reason") == ["Finish as failed"]
    assert follow(file, "Finish as failed") == ["Stop with the reason"]
    for name, output in [*REFUSED[stem], ("Finished?", 1)]:
        assert follow(file, name, output) == ["Find the reason"]


@each_file
def test_a_request_is_sent_again_just_where_a_second_one_does_no_harm(file: Path) -> None:
    """C2: an answer that was lost is asked for again, unless a use of a cookie would be counted twice."""
    requests = list_kind(file, "httpRequest")
    again = {node["name"] for node in requests if node.get("retryOnFail")}
    counted = {node["name"] for node in requests if node["parameters"]["url"].endswith(COUNTED)}
    assert (again & counted, again | counted) == (set(), {node["name"] for node in requests})


@each_file
def test_the_way_through_a_workflow_goes_from_left_to_right(file: Path) -> None:
    """But for its loops, each of which begins at a node that says so."""
    nodes = read_nodes(file)
    back = set()
    for name, outputs in json.loads(file.read_text())["connections"].items():
        for target in (each["node"] for output in outputs["main"] for each in output):
            if nodes[target]["position"][0] <= nodes[name]["position"][0]:
                back.add(target)
    assert back == LOOPS.get(file.stem, set())


@each_file
def test_no_node_lies_on_another(file: Path) -> None:
    placed = [box(node) for node in read_nodes(file).values()]
    assert [pair for pair in combinations(placed, 2) if overlap(*pair)] == []


Box = tuple[str, int, int, int, int]


def box(node: Mapping[str, Any]) -> Box:
    """Where a node lies; one that is no note is 100 wide, with its name below."""
    x, y = node["position"]
    size = node["parameters"]
    return node["name"], x, y, x + size.get("width", 100), y + size.get("height", 130)


def overlap(one: Box, other: Box) -> bool:
    return one[1] < other[3] and other[1] < one[3] and one[2] < other[4] and other[2] < one[4]
