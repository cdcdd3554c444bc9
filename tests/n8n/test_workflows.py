"""The shipped workflows in a real n8n, against a real `tidings serve` and a platform of the sandbox. What counts is
what stands in the tables afterwards."""

import asyncio
import json
from datetime import timedelta
from typing import Any

import pytest

from tests.n8n.driver import COLLECT, CREDENTIAL_ID, DISCOVER, ERRORS, RECOVER, SHIPPED, N8n, find_port
from tests.n8n.stage import CANARY, KEYWORD, TOKEN, Outside, Stage
from tests.traces import find_traces
from tidings.collect.errors import BACKOFF
from tidings.core.clock import SystemClock, to_milliseconds
from tidings.sandbox.media.bilibili import VIEW_PATH, name_video
from tidings.sandbox.wire.faults import Fault, FaultKind
from tidings.sandbox.wire.request_log import Recorded

pytestmark = pytest.mark.n8n

FOUND = 12


async def test_the_shipped_files_import_as_they_are_and_a_second_time_without_doubles(
    n8n: N8n, outside: Outside
) -> None:
    """C19: what n8n has then is what the files say, once."""
    shipped = [json.loads(file.read_text()) for file in sorted(SHIPPED.glob("*.json"))]
    try:
        for _ in range(2):
            said = await n8n.run("import:workflow", "--separate", f"--input={SHIPPED}", **outside.variables)
            assert "Successfully imported 5 workflows." in said.text
        kept = n8n.read("SELECT id, name, nodes, connections, settings, active FROM workflow_entity ORDER BY id")
    finally:
        await n8n.run("import:workflow", "--separate", f"--input={n8n.aim()}")
    for document in shipped:
        # The file knows the credential by its name; in the editor it got an id of its own.
        for node in document["nodes"]:
            if "credentials" in node:
                node["credentials"]["httpHeaderAuth"]["id"] = CREDENTIAL_ID
    names = ("id", "name", "nodes", "connections", "settings", "active")
    assert kept == sorted(tuple(document[name] for name in names) for document in shipped)
    assert outside.wanted == []


async def test_n8n_calls_home_where_nobody_stops_it(n8n: N8n, outside: Outside) -> None:
    """What sees that nothing goes out in the other tests would see it."""
    variables = {"N8N_DIAGNOSTICS_ENABLED": "true", "N8N_PORT": str(find_port()), **outside.variables}
    await n8n.start("start", **variables)
    async with asyncio.timeout(120):
        await outside.was_asked.wait()
    assert "n8n.io" in outside.wanted[0]


async def test_discover_twice_leaves_each_candidate_once(stage: Stage) -> None:
    """C19, C2: what is known already stays as it is, under the request id that found it."""
    first = await stage.execute(DISCOVER)
    found = await stage.read_candidates()
    second = await stage.execute(DISCOVER)
    assert (first.status, second.status) == ("success", "success")
    assert await stage.read_candidates() == found
    assert len(found) == FOUND
    assert {(row["status"], row["source_keyword"]) for row in found.values()} == {("pending", KEYWORD)}
    assert {json.loads(row["exec_meta"])["request_id"] for row in found.values()} == {first.request_id}
    [keyword] = await stage.read("SELECT * FROM watched_keywords")
    assert (keyword["last_found"], keyword["last_created"], keyword["last_error_code"]) == (FOUND, 0, None)
    ended = await stage.read_executions("discover")
    assert [(row["status"], row["items_processed"]) for row in ended] == [("succeeded", FOUND), ("succeeded", 0)]


async def test_a_search_that_fails_is_tried_again_by_the_rule_of_its_code(stage: Stage) -> None:
    """C15, C19: twice more for PLATFORM_ERROR; each try is counted for its cookie, and the keyword says what came of
    it. The run itself did its work."""
    stage.platform.misbehave(Fault(status=503, matching=KEYWORD))
    run = await stage.execute(DISCOVER)
    assert (run.status, await stage.read_candidates()) == ("success", {})
    assert (stage.count_questions(KEYWORD), await stage.count_cookie_uses()) == (3, 3)
    [keyword] = await stage.read("SELECT * FROM watched_keywords")
    assert (keyword["last_found"], keyword["last_error_code"]) == (0, "PLATFORM_ERROR")
    [ended] = await stage.read_executions("discover")
    assert (ended["status"], ended["items_failed"]) == ("partial", 1)


async def test_collect_brings_every_candidate_into_the_table_under_n8ns_request_id(stage: Stage) -> None:
    """C6, C19, C20: one id leads from n8n's execution through the API's log to the record."""
    await stage.execute(DISCOVER)
    run = await stage.execute(COLLECT)
    candidates = await stage.read_candidates()
    sources = await stage.read("SELECT * FROM tbl_source ORDER BY note_id")
    assert run.status == "success"
    assert {(row["status"], row["retry_count"]) for row in candidates.values()} == {("collected", 0)}
    assert [row["note_id"] for row in sources] == list(candidates)
    assert len(sources) == FOUND
    assert {json.loads(row["exec_meta"])["request_id"] for row in sources} == {run.request_id}
    assert all(json.loads(row["content"])["title"] == row["title"] for row in sources)
    [ended] = await stage.read_executions("collect")
    assert (ended["status"], ended["items_processed"], ended["items_failed"]) == ("succeeded", FOUND, 0)
    events = stage.read_log(run.request_id)
    assert {"workflow.acquired", "candidates.leased", "crawl.batch", "candidates.settled"} <= set(events)
    # Ten, two, and none.
    assert (events.count("crawl.batch"), events.count("workflow.finished")) == (2, 1)


async def test_no_cookie_passes_through_n8n(stage: Stage) -> None:
    """C7: neither in the answers of the API, nor in anything that n8n keeps, in any spelling; only its name."""
    stage.platform.misbehave(Fault(status=401, body=f'{{"message": {json.dumps(CANARY)}}}', matching=name_video(3)))
    await stage.execute(DISCOVER)
    await stage.execute(COLLECT)
    kept = await asyncio.to_thread(stage.n8n.dump)
    assert '"canary"' in kept
    assert "COOKIE_INVALID" in kept
    assert TOKEN not in kept
    assert find_traces(kept, CANARY) == set()
    assert find_traces(kept + json.dumps(CANARY), CANARY)


async def test_what_fails_is_tried_again_by_rule_and_then_counted(stage: Stage) -> None:
    """C15, C10: of twelve notes one is down for good, one for a moment, and one is cut off once, which costs a wait."""
    await stage.execute(DISCOVER)
    before = await stage.count_cookie_uses()
    down, shaky, cut = (name_video(number) for number in (3, 8, 13))
    stage.platform.misbehave(Fault(status=503, path=VIEW_PATH, matching=down))
    stage.platform.misbehave(Fault(status=503, path=VIEW_PATH, matching=shaky, times=1))
    stage.platform.misbehave(Fault(FaultKind.RESET, path=VIEW_PATH, matching=cut, times=1))
    run = await stage.execute(COLLECT)
    candidates = await stage.read_candidates()
    assert run.status == "success"
    assert {row["status"] for note_id, row in candidates.items() if note_id != down} == {"collected"}
    failed = candidates[down]
    # It is due again after five seconds, which may be within this execution.
    leases = failed["retry_count"]
    assert (failed["status"], leases in (1, 2, 3)) == ("failed" if leases == 3 else "pending", True)
    assert (failed["last_error_code"], failed["processing_lock"]) == ("PLATFORM_ERROR", None)
    assert [stage.count_questions(note_id) for note_id in (down, shaky, cut)] == [3 * leases, 2, 2]
    timestamps = [each.at for each in stage.platform.requests if cut in each.urls]
    assert timestamps[1] - timestamps[0] >= BACKOFF[0].total_seconds()
    assert await stage.count_cookie_uses() - before == FOUND - 3 + 2 + 2 + 3 * leases
    [ended] = await stage.read_executions("collect")
    assert (ended["status"], ended["items_processed"], ended["items_failed"]) == ("partial", FOUND - 1, leases)


async def test_without_a_cookie_everything_is_given_back_uncounted(stage: Stage) -> None:
    """C15: COOKIE_EXHAUSTED pauses the platform; the execution ends instead of asking for ever."""
    await stage.execute(DISCOVER)
    await stage.change("DELETE FROM tbl_cookie")
    run = await stage.execute(COLLECT)
    assert run.status == "success"
    states = {(row["status"], row["retry_count"]) for row in (await stage.read_candidates()).values()}
    assert states == {("pending", 0)}
    [ended] = await stage.read_executions("collect")
    assert (ended["status"], ended["items_processed"]) == ("succeeded", 0)


async def test_a_lock_that_another_holds_ends_the_run_quietly(stage: Stage) -> None:
    """C3: nothing is leased and nothing written; the holder keeps what it has."""
    await stage.execute(DISCOVER)
    before = await stage.read_candidates()
    for workflow, name in ((COLLECT, "collect"), (DISCOVER, "discover")):
        held = await stage.ask("/workflow/executions", {"workflow_name": name})
        asked = len(stage.platform.requests)
        run = await stage.execute(workflow)
        assert (run.status, "Another execution has it" in run.nodes) == ("success", True)
        assert stage.read_log(run.request_id).count("workflow.acquired") == 0
        assert len(stage.platform.requests) == asked
        newest = (await stage.read_executions(name))[-1]
        assert (newest["execution_id"], newest["status"]) == (held["execution_id"], "running")
    assert await stage.read_candidates() == before


async def test_recover_frees_what_a_silent_run_held(stage: Stage) -> None:
    """C5: the execution is over, its records are due again, and it counts as a failed try."""
    await stage.execute(DISCOVER)
    held = await stage.ask("/workflow/executions", {"workflow_name": "collect"})
    await stage.ask("/workflow/candidates/lease", {"execution_id": held["execution_id"], "limit": 5})
    await stage.execute(RECOVER)
    [living] = await stage.read_executions("collect")
    assert living["status"] == "running"
    silent = to_milliseconds(SystemClock().now() - timedelta(minutes=31))
    await stage.change(f"UPDATE executions SET heartbeat_at = {silent} WHERE status = 'running'")
    await stage.change(f"UPDATE tbl_candidate SET locked_at = {silent} WHERE locked_at IS NOT NULL")
    run = await stage.execute(RECOVER)
    assert run.status == "success"
    [dead] = await stage.read_executions("collect")
    assert dead["status"] == "timeout"
    rows = (await stage.read_candidates()).values()
    assert sorted((row["status"], row["retry_count"]) for row in rows) == [("pending", 0)] * 7 + [("pending", 1)] * 5
    # The service recovers every few seconds as well: whoever came first did it.
    assert '"records.recovered"' in stage.terminal.log


async def test_a_run_that_loses_its_lock_gives_up_and_tells_why(stage: Stage) -> None:
    """C4, C5: what it crawled is not written, and n8n shows the execution as failed."""
    await stage.execute(DISCOVER)
    take_away(stage)
    run = await stage.execute(COLLECT)
    assert (run.status, "Finish as failed" in run.nodes) == ("error", True)
    assert await stage.read("SELECT * FROM tbl_source") == []


async def test_the_error_workflow_by_hand_is_a_rehearsal(stage: Stage) -> None:
    """C24: an alert that one can look at, and that the next good run ends."""
    assert (await stage.execute(ERRORS)).status == "success"
    [alert] = await stage.read("SELECT * FROM alert_conditions")
    assert (alert["kind"], alert["subject"], "rehearsal" in alert["reason"]) == ("workflow_failed", "collect", True)
    assert (await stage.execute(COLLECT)).status == "success"
    assert await stage.read("SELECT * FROM alert_conditions") == []


def take_away(stage: Stage) -> None:
    """The next execution is ended by somebody else as soon as it asks the platform for a note."""

    async def end_execution(request: Recorded) -> None:
        if request.path == VIEW_PATH:
            stage.platform.on_request = None
            await stage.change("UPDATE executions SET status = 'timeout' WHERE status = 'running'")

    stage.platform.on_request = end_execution


async def test_a_failed_run_on_schedule_opens_an_alert_that_the_next_good_run_ends(stage: Stage) -> None:
    """C19, C24: n8n as a service, by its schedule and its error workflow; the reason is what Tidings answered."""
    await stage.execute(DISCOVER)
    take_away(stage)
    folder = stage.n8n.aim(hurry)
    try:
        await stage.n8n.run("import:workflow", "--separate", f"--input={folder}")
        for workflow in (ERRORS, COLLECT):
            await stage.n8n.run("publish:workflow", f"--id={workflow}")
        await stage.n8n.start("start", N8N_PORT=str(find_port()), **stage.outside.variables)
        [alert] = await wait_for_alerts(stage, 1)
        [failed, *_] = await stage.read_executions("collect")
        assert failed["status"] == "timeout"
        assert (alert["subject"], "no longer holds collect" in alert["reason"]) == ("collect", True)
        assert await wait_for_alerts(stage, 0) == []
        newest = (await stage.read_executions("collect"))[-1]
        assert newest["status"] in ("succeeded", "running")
    finally:
        await stage.n8n.close()
        for workflow in (ERRORS, COLLECT):
            await stage.n8n.run("unpublish:workflow", f"--id={workflow}")
        await stage.n8n.run("import:workflow", "--separate", f"--input={stage.n8n.aim()}")


def hurry(document: dict[str, Any]) -> None:
    """Every few seconds instead of minutes."""
    for node in document["nodes"]:
        if node["type"] == "n8n-nodes-base.scheduleTrigger":
            node["parameters"]["rule"]["interval"] = [{"field": "seconds", "secondsInterval": 5}]


async def wait_for_alerts(stage: Stage, count: int) -> list[dict[str, Any]]:
    async with asyncio.timeout(120):
        while True:
            alerts = await stage.read("SELECT * FROM alert_conditions WHERE kind = 'workflow_failed'")
            if len(alerts) == count:
                return alerts
