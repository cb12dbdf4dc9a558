"""Documentation and site: generated pages, links, and examples that run."""

from __future__ import annotations

import contextlib
import doctest
import importlib
import inspect
import io
import os
import pickle
import pkgutil
import re
import runpy
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import connectors
import streamsvm
from streamsvm import StreamSVMClassifier
from streamsvm.core.cache import cache_folder
from tests.commands import ran_here

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
TUTORIALS = sorted((DOCS / "tutorials").glob("*.md"))
SHELL = {"PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])}
EXAMPLES = [page for page in PAGES if ">>>" in page.read_text(encoding="utf-8") and page not in TUTORIALS]
AT_TOP = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md"]


@pytest.mark.parametrize(
    ("script", "made"),
    [
        ("state_page.py", "state.md"),
        ("command_line_page.py", "reference/command-line.md"),
        ("house_picture.py", "explanation/house.svg"),
    ],
)
def test_a_page_that_is_made_from_code_is_that_of_the_code(script, made):
    page = runpy.run_path(str(DOCS / script))["page"]()
    assert (DOCS / made).read_text(encoding="utf-8") == page, f"run python docs/{script}"


def test_every_number_and_array_has_a_meaning():
    tables = runpy.run_path(str(DOCS / "state_page.py"))["TABLES"]
    for declaration in tables:
        for name, entry in declaration.entries.items():
            assert entry.meaning, (declaration.name, name)


def test_every_public_class_function_and_method_has_a_docstring():
    for module in modules():
        for name, found in vars(module).items():
            here = getattr(found, "__module__", None) == module.__name__ and not name.startswith("_")
            if here and (inspect.isclass(found) or inspect.isfunction(found)):
                for path, each in [(name, found), *(methods(name, found) if inspect.isclass(found) else ())]:
                    assert inspect.getdoc(each), f"{module.__name__}.{path} has no docstring"


def test_every_error_survives_pickling():
    """As from a worker process."""
    examples = {"rows": {0: "bad"}, "size": 1, "missing": [], "new": []}
    for module in modules():
        for cls in vars(module).values():
            if inspect.isclass(cls) and issubclass(cls, Exception) and cls.__module__ == module.__name__:
                taken = inspect.signature(cls).parameters.values() if inspect.isfunction(cls.__init__) else ()
                names = [each.name for each in taken if each.kind is each.POSITIONAL_OR_KEYWORD]
                error = cls(*(examples.get(name, name) for name in names or ["message"]))
                received = pickle.loads(pickle.dumps(error))
                assert (type(received), str(received), vars(received)) == (cls, str(error), vars(error))


def test_the_reference_describes_all_parameters():
    objects = shown()
    for path, found in objects.items():
        has_all = inspect.isclass(found) and not any(each.startswith(f"{path}.") for each in objects)
        for name, each in [(path, found), *(methods(path, found) if has_all else ())]:
            assert not untold(each), f"{name} does not tell of {untold(each)}"


@pytest.mark.parametrize("name", ["streamsvm", "streamsvm.batch", "streamsvm.refit", "connectors"])
def test_the_reference_has_every_public_class_and_function(name):
    module = importlib.import_module(name)
    public = {getattr(module, each) for each in module.__all__}
    assert {each for each in public if inspect.isclass(each) or inspect.isfunction(each)} <= set(shown().values())


def shown() -> dict[str, Any]:
    """Return the objects shown on the reference pages."""
    text = "".join(page.read_text(encoding="utf-8") for page in sorted((DOCS / "reference").glob("*.md")))
    paths = []
    for path, members in re.findall(r"^::: (\S+)\n(?:    options: .*?members: \[([^\]]*)\])?", text, re.MULTILINE):
        paths += [path, *(f"{path}.{each}" for each in members.split(", ") if members)]
    found = {path: pkgutil.resolve_name(path) for path in paths}
    return {path: each for path, each in found.items() if not inspect.ismodule(each)}


def modules() -> Iterator[ModuleType]:
    for package in (streamsvm, connectors):
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not found.name.endswith("__main__"):
                yield importlib.import_module(found.name)


def methods(name: str, cls: type) -> Iterator[tuple[str, Any]]:
    """Yield the public methods and properties of this project, with inherited ones."""
    for key in dir(cls):
        each = inspect.getattr_static(cls, key)
        function = each.fget if isinstance(each, property) else getattr(each, "__func__", each)
        ours = inspect.isfunction(function) and function.__module__.startswith(("streamsvm", "connectors"))
        if ours and not key.startswith("_"):
            yield f"{name}.{key}", getattr(cls, key)


def untold(found: Any) -> set[str]:
    """Return the parameters that a docstring does not document."""
    if isinstance(found, property) or getattr(found, "_is_protocol", False):
        return set()
    if inspect.isclass(found) and issubclass(found, Exception):
        return set()
    told = re.findall(r"^([\w*][\w, *]*?)(?: :.*)?$", inspect.getdoc(found) or "", re.MULTILINE)
    names = {name.strip(" *") for line in told for name in line.split(",")}
    return set(inspect.signature(found).parameters) - names - {"self", "cls"}


@pytest.mark.slow
def test_the_site_is_built_without_a_warning(tmp_path):
    # The index of words and the colours of code take a quarter of the time, garbage collection a fifth.
    config = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    changes = {"  - search": "", "pymdownx.highlight": "pymdownx.highlight: {use_pygments: false}", "strict: true": ""}
    for found, taken in changes.items():
        assert f"{found}\n" in config
        config = config.replace(f"{found}\n", f"{taken}\n")
    code = "import gc; gc.disable(); from mkdocs.__main__ import cli; cli()"
    command = [sys.executable, "-c", code, "build", "-f", "-", "--site-dir", str(tmp_path)]
    env = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=env, input=config, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    said = [line for line in done.stderr.splitlines() if line.startswith(("WARNING", "ERROR"))]
    assert said == []
    assert "class StreamSVMClassifier" not in (tmp_path / "index.html").read_text(encoding="utf-8")
    learners = (tmp_path / "reference" / "learners" / "index.html").read_text(encoding="utf-8")
    assert 'id="streamsvm.StreamSVMClassifier.test_then_train"' in learners
    assert "peek_proba_many" not in learners


@pytest.mark.parametrize("page", EXAMPLES, ids=lambda page: str(page.relative_to(ROOT)))
def test_examples_print_the_shown_results(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    flags = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
    failed, attempted = doctest.testfile(str(page), module_relative=False, optionflags=flags)
    assert failed == 0
    assert attempted > 0


@pytest.mark.parametrize("page", [ROOT / "README.md", DOCS / "index.md"], ids=lambda page: page.name)
def test_a_script_prints_the_output_on_the_page(page):
    scripts = [(code, shown) for (kind, _, code), (_, _, shown) in pairwise(blocks(page)) if kind == "python"]
    assert scripts
    for code, shown in scripts:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(code, {})
        assert printed.getvalue() == shown


@pytest.mark.parametrize("page", EXAMPLES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_copy_button_copies_code_that_runs(page):
    statements = runpy.run_path(str(DOCS / "copying.py"))["statements"]
    for _, _, text in blocks(page):
        if text.startswith(">>>"):
            assert compile(statements(text), str(page), "exec").co_code
            assert not re.search(r"^(>>>|\.\.\.)", statements(text), re.MULTILINE)


def test_the_readme_has_two_set_up_commands_and_continuous_integration_runs_the_second():
    shell = "".join(text for kind, _, text in blocks(ROOT / "README.md") if kind == "sh")
    commands = [line for line in shell.splitlines() if "pip install" in line]
    assert len(commands) == 2
    assert commands[1] in (ROOT / ".ci" / "run").read_text().splitlines()


@pytest.mark.parametrize("name", AT_TOP)
def test_files_that_are_linked_or_named_exist(name):
    text = (ROOT / name).read_text()
    found = re.findall(r"\]\((?!https?:)([^)#]+)", text)
    if name != "CHANGELOG.md":  # it names files that are gone
        found += re.findall(r"`((?:docs|tests|streamsvm|connectors|simulations|\.ci)/[\w./-]+)`", text)
    for path in found:
        assert (ROOT / path).exists(), path


@pytest.mark.parametrize("page", [ROOT / "CONTRIBUTING.md", DOCS / "how-to" / "extend.md"], ids=lambda page: page.name)
def test_names_of_the_code_are_in_the_named_files(page):
    named = re.findall(r"`(\w+)` (?:of|in)\s+`([\w/]+\.py)`", page.read_text(encoding="utf-8"))
    assert named
    for name, path in named:
        file = next(each for each in (ROOT / path, ROOT / "streamsvm" / path) if each.exists())
        assert re.search(rf"\b{name}\b", file.read_text(encoding="utf-8")), f"{name} is not in {path}"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["first-stream.md", "history-to-live.md", "late-labels.md"])
def test_a_tutorial_runs_as_it_is_written(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found: dict[str, object] = {}
    for kind, title, text in blocks(DOCS / "tutorials" / name):
        if title:
            Path(title).write_text(text, encoding="utf-8")
        elif kind == "sh":
            for line in text.replace("\\\n", "").splitlines():
                if line.startswith("streamsvm "):
                    ran_here(*shlex.split(line)[1:], cwd=tmp_path, check=True)
                else:
                    run(line)
        else:
            test = doctest.DocTestParser().get_doctest(text, found, name, name, 0)
            runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
            runner.run(test, clear_globs=False)
            found = test.globs
            assert runner.summarize(verbose=False).failed == 0


@pytest.mark.slow
def test_the_member_of_the_how_to_page_takes_part(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = {title or kind: text for kind, title, text in blocks(DOCS / "how-to" / "extend.md") if ">>>" not in text}
    shutil.copytree(ROOT / "streamsvm", "streamsvm")
    perceptron = "streamsvm/ensemble/perceptron.py"
    Path(perceptron).write_text(found[perceptron], encoding="utf-8")
    blend = Path("streamsvm/ensemble/members.py")
    member, line = found["python"].split("\n\n\nMEMBERS: dict[str, Callable[[int], Member]] = {\n    ...\n")
    imports = re.compile(r"^from streamsvm.ensemble import .*trees$", re.MULTILINE)
    text = imports.sub(lambda line: f"{line[0]}, perceptron", blend.read_text(encoding="utf-8"))
    text = re.sub(r"^MEMBERS: .*\n", lambda head: f"{member}\n\n\n{head[0]}{line[:-2]}", text, flags=re.MULTILINE)
    blend.write_text(text, encoding="utf-8")
    StreamSVMClassifier().run_batch([{"warm": 1.0}], [0])
    key = run('python -c "from streamsvm.core.cache import content_key; print(content_key())"').strip()
    assert key != cache_folder().name
    compiled = tmp_path / "cache" / "streamsvm" / key
    shutil.copytree(cache_folder(), compiled, copy_function=os.symlink)  # its other kernels are those of this package
    compiled.parent.chmod(0o700)
    assert "Accuracy: " in run(f"export NUMBA_CACHE_DIR={tmp_path / 'cache'}\n{found['sh']}")
    assert len(list(compiled.glob("ensemble.perceptron.run_member-*.code"))) == 1


def blocks(page: Path) -> list[tuple[str, str, str]]:
    """Return language, title and text of each code block."""
    fences = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```', re.MULTILINE | re.DOTALL)
    return fences.findall(page.read_text(encoding="utf-8"))


def run(script: str) -> str:
    """Run a shell block. Fail if it fails."""
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script], env=os.environ | SHELL, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
