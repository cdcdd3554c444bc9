"""Mutation testing: mutmut changes one expression at a time, and the tests of the module must notice.

    python -m scripts.mutants core/secrets/tokens core/net/addresses

Without a name, all modules of `TESTS` are tried, one after the other. Only tests on SQLite run, in one process. The
survivors are printed as differences. The command fails if fewer than nine of ten mutants of a module are killed.
`docs/reliability.md` explains the survivors.
"""

import argparse
import ast
import json
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from difflib import unified_diff
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
FOLDER: Final = ROOT / ".venv" / "mutants"
LEAST_KILLED: Final = 0.9

# Each module, and the test files that state its promises.
TESTS: Final = {
    "collect/crawl/cookies/states": ("tests/collect/test_cookie_states.py",),
    "core/secrets/secret": ("tests/core/test_secrets.py",),
    "core/secrets/tokens": ("tests/core/test_secrets.py", "tests/web/test_tokens.py"),
    "core/secrets/master_key": (
        "tests/core/test_keyring.py",
        "tests/core/test_key_messages.py",
        "tests/test_owners.py",
    ),
    "core/secrets/keyring": ("tests/core/test_keyring.py", "tests/core/test_key_messages.py"),
    "core/secrets/redaction": ("tests/core/test_redaction.py", "tests/core/test_redaction_again.py"),
    "core/net/addresses": ("tests/core/test_addresses.py",),
    "core/executions": ("tests/core/test_executions.py", "tests/core/test_execution_history.py"),
    "announce/channels/quota/quota": (
        "tests/announce/test_quota.py",
        "tests/announce/test_learned_quota.py",
        "tests/announce/test_shared_quota.py",
    ),
    "announce/ledger/outbox": ("tests/announce/test_outbox.py",),
    "collect/write/cookies": (
        "tests/collect/test_cookie_records.py",
        "tests/collect/test_cookie_changes.py",
        "tests/collect/test_cookie_outcomes.py",
    ),
}

# mutmut asks each test for a private name that pytest 9.1 has no more.
CONFTEST: Final = """

@pytest.hookimpl(trylast=True)
def pytest_itemcollected(item: pytest.Item) -> None:
    item._nodeid = item.nodeid
"""

# What mutmut writes of a mutant: pytest's exit code, or a code of its own.
SURVIVED: Final = 0
NO_TESTS: Final = 33


def main() -> None:
    parser = argparse.ArgumentParser(description="Mutation testing of the modules that must not fail.")
    parser.add_argument("modules", nargs="*", metavar="MODULE", choices=[*TESTS, []], help="such as core/executions")
    parser.add_argument("--minutes", type=float, default=60.0, help="the longest time for one module")
    options = parser.parse_args()
    modules: list[str] = options.modules or list(TESTS)
    passed = [try_module(module, seconds=60 * options.minutes) for module in modules]
    sys.exit(0 if all(passed) else 1)


def try_module(module: str, *, seconds: float) -> bool:
    """Print the mutants of a module that survive, and whether enough were killed."""
    folder = FOLDER / module.replace("/", "-")
    prepare(folder, module)
    try:
        run_mutmut(folder, "run", "--max-children", "1", timeout=seconds)
    except subprocess.TimeoutExpired:
        say(f"{module}: not finished in {seconds / 60:.0f} minutes")
    except subprocess.CalledProcessError as error:
        say(f"{module}: mutmut failed\n{error.stdout[-4_000:]}")
        return False
    mutated = folder / "mutants" / "src" / "tidings" / f"{module}.py"
    codes: dict[str, int | None] = json.loads(Path(f"{mutated}.meta").read_text())["exit_code_by_key"]
    return report(module, codes, source=mutated.read_text())


def prepare(folder: Path, module: str) -> None:
    """A copy of sources and tests, with the settings of mutmut."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    ignored = shutil.ignore_patterns("__pycache__")
    for name in ("src", "tests", "docs"):
        shutil.copytree(ROOT / name, folder / name, ignore=ignored)
    with (folder / "tests" / "conftest.py").open("a") as file:
        file.write(CONFTEST)
    # Tests with processes of their own take too long for hundreds of mutants.
    chosen = ["-m", "not slow", "-k", "not postgresql and not process", *TESTS[module]]
    settings = {
        "only_mutate": [f"src/tidings/{module}.py"],
        "pytest_add_cli_args": ["-p", "no:cacheprovider", "-p", "no:xdist"],
        "pytest_add_cli_args_test_selection": chosen,
        "also_copy": ["docs"],
        # Seconds of CPU, also for a test that never ends: so many times the usual, and so many more.
        "timeout_multiplier": 5,
        "timeout_constant": 5,
    }
    lines = [f"{name} = {json.dumps(value)}" for name, value in settings.items()]
    project = (ROOT / "pyproject.toml").read_text()
    (folder / "pyproject.toml").write_text("\n".join([project, "[tool.mutmut]", *lines, ""]))


def run_mutmut(folder: Path, *words: str, timeout: float) -> None:
    command = [str(Path(sys.executable).with_name("mutmut")), *words]
    subprocess.run(  # noqa: S603
        command, cwd=folder, check=True, timeout=timeout, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def report(module: str, codes: dict[str, int | None], *, source: str) -> bool:
    tried = [name for name, code in codes.items() if code is not None]
    alive = [name for name in tried if codes[name] in (SURVIVED, NO_TESTS)]
    for lines in describe(alive, source):
        say(lines)
    share = 1 - len(alive) / len(tried) if tried else 0.0
    untested = Counter(codes.values())[NO_TESTS]
    say(
        f"{module}: {len(codes)} mutants, {len(tried)} tried, {len(tried) - len(alive)} killed ({share:.1%}), "
        f"{len(alive)} survived, of these {untested} without a test"
    )
    return share >= LEAST_KILLED and len(tried) == len(codes)


def describe(names: Sequence[str], source: str) -> Iterator[str]:
    """Each mutant as the lines that it changes. The source holds the original and all mutants of a function."""
    functions = {
        node.name: ast.get_source_segment(source, node) or ""
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    for name in names:
        mutant = name.rpartition(".")[2]
        original = mutant.rpartition("__mutmut_")[0] + "__mutmut_orig"
        before, after = (functions[each].splitlines()[1:] for each in (original, mutant))
        difference = unified_diff(before, after, n=0, lineterm="")
        changed = [line for line in difference if not line.startswith(("---", "+++", "@@"))]
        yield "\n".join([name, *changed])


def say(text: str) -> None:
    print(text, flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
