"""The pages under docs/: their code runs and prints what they say, and their links lead somewhere.

The python blocks of a page run in order in one namespace. A text block right after one is what it
prints, with ... for what varies.
"""

import contextlib
import doctest
import io
import linecache
import pathlib
import re
import subprocess
import sys
import types
from unittest import mock

import pytest
import tensorflow as tf

import tfjac

DOCS = pathlib.Path(__file__).parent.parent / "docs"
PAGES = sorted(DOCS.glob("*.md"))
# A fence with its language, what is in it, and where it stands in a page.
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)

pytestmark = pytest.mark.skipif(not PAGES, reason="the pages are not beside the tests")
by_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)


def blocks(page):
    """Yields (first line, code, what it prints or None) of each python block."""
    text = page.read_text()
    found = list(_FENCE.finditer(text))
    for block, after in zip(found, [*found[1:], None]):
        if block[1] == "python":
            follows = after and after[1] == "text" and not text[block.end() : after.start()].strip()
            yield text[: block.start()].count("\n") + 2, block[2], after[2] if follows else None


def run(page):
    """Yields (first line, what is printed, what the page says) of each block that says it."""
    module = sys.modules[f"page_{page.stem}"] = types.ModuleType(f"page_{page.stem}")
    for line, code, wanted in blocks(page):
        name = f"{page.name}:{line}"
        # AutoGraph reads the source of functions.
        linecache.cache[name] = (len(code), None, code.splitlines(keepends=True), name)
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(code, name, "exec"), vars(module))
        if wanted is not None:
            yield line, printed.getvalue(), wanted


@by_page
def test_the_code_of_a_page_runs_and_prints_what_the_page_says(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tf.keras.utils.set_random_seed(0)
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    with mock.patch.dict(tfjac.rules._TABLE), mock.patch.dict(sys.modules):
        for line, printed, wanted in run(page):
            same = doctest.OutputChecker().check_output(wanted, printed, flags)
            assert same, f"{page.name}:{line} prints\n{printed}\nand not\n{wanted}"


def anchors(page):
    text = _FENCE.sub("", page.read_text())
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", h.lower()).strip().replace(" ", "-") for h in headings}


@by_page
def test_the_links_of_a_page_lead_somewhere(page):
    text = re.sub(r"`[^`\n]*`", "", _FENCE.sub("", page.read_text()))
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if target.startswith("http"):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.is_file(), f"{page.name} links to {target}"
        assert not anchor or anchor in anchors(file), f"{page.name} links to {target}"


def test_every_page_is_in_the_contents():
    listed = re.findall(r"(\w+\.md)$", (DOCS.parent / "mkdocs.yml").read_text(), re.MULTILINE)
    assert sorted(listed) == [page.name for page in PAGES]


def test_the_reference_lists_every_public_name_and_no_other():
    text = (DOCS / "api.md").read_text()
    named = set(re.findall(r"^\| `(?:tfjac\.)?([\w.]+)", text, re.MULTILINE))
    assert set(tfjac.__all__) <= named
    for name in named:
        found = tfjac
        for part in name.split("."):
            found = getattr(found, part)
    for module in (tfjac.errors, tfjac.strategies, tfjac.testing):
        public = getattr(module, "__all__", None) or [n for n in vars(module) if n[0].isupper()]
        names = {f"{module.__name__.removeprefix('tfjac.')}.{n}" for n in public}
        assert names <= named, names - named


def test_the_pages_build_without_a_warning(tmp_path):
    pytest.importorskip("mkdocs")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "-d", str(tmp_path)]
    done = subprocess.run(command, cwd=DOCS.parent, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
