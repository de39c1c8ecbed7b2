"""docs/tensorflow_derivatives.md names each op type with a fault, once, and no other."""

import collections
import pathlib
import re

import answers_test
import pytest

from tfjac.audit import families, reasons, table
from tfjac.graph import missing
from tfjac.rewriting.table import TABLE

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "tensorflow_derivatives.md"

pytestmark = pytest.mark.skipif(not PAGE.exists(), reason="the pages are not beside the tests")


def lines():
    return re.findall(
        r"^\| `([\w.]+)` \| (.*?) \| (.*?) \| (.*?) \|$", PAGE.read_text(), re.MULTILINE
    )


def test_the_page_has_a_line_for_each_op_type_of_the_table_and_for_no_other():
    named = collections.Counter(op_type for op_type, *_ in lines())
    assert named == collections.Counter({row.op_type for row in table.committed().rows})


def test_each_line_says_what_is_wrong_and_what_tfjac_does():
    assert [op_type for op_type, what, _, does in lines() if not (what and does)] == []


def test_the_page_says_of_which_tensorflow_it_is_and_how_many_op_types_are_registered():
    text = PAGE.read_text()
    assert f"TensorFlow {table.committed().version} " in text
    sampled = {sample.op_type for sample in families.OPS}
    assert f"of all {len(sampled) + len(reasons.NOT_SAMPLED)} op types" in text
    assert f" {len(sampled)} were tried" in text


def test_the_page_names_each_op_type_that_is_replaced_or_refused():
    refused = {
        *missing.NONE_BY_INPUT,
        *missing.WRONG,
        *(name for name, _ in missing.WRONG_BY_INPUT),
    }
    text = PAGE.read_text()
    assert [name for name in sorted({*TABLE, *refused}) if f"`{name}`" not in text] == []


def test_each_line_says_whether_an_op_type_is_replaced_or_refused():
    said = {op_type: does for op_type, *_, does in lines()}
    assert [n for n in said if n in TABLE and "replaced" not in said[n]] == []
    assert [n for n in said if n in missing.WRONG and "refuses" not in said[n]] == []


def test_the_page_of_limits_names_what_depends_on_values():
    text = (PAGE.parent / "limits.md").read_text()
    assert [name for name, _ in answers_test.BY_VALUE if f"`{name}" not in text] == []
