"""absl flags."""

import pytest
from absl import flags

import tfjac


def parse(prefix="", *arguments, **options):
    values = flags.FlagValues()
    tfjac.flags.define(prefix, flag_values=values, **options)
    values(["program", *arguments])
    return values


def test_the_defaults_are_those_of_prepare():
    assert tfjac.flags.options(flag_values=parse()) == {
        "strategy": "auto",
        "chunk_size": "auto",
        "jit_compile": False,
        "device": None,
        "unconnected_gradients": "zero",
    }
    tfjac.prepare(abs, **tfjac.flags.options(flag_values=parse()))


def test_what_is_said_is_what_comes():
    values = parse(
        "j_",
        "--j_strategy=while_loop",
        "--j_chunk_size=none",
        "--j_jit_compile",
        "--j_device=/CPU:0",
        "--j_unconnected_gradients=none",
    )
    assert tfjac.flags.options("j_", flag_values=values) == {
        "strategy": "while_loop",
        "chunk_size": None,
        "jit_compile": True,
        "device": "/CPU:0",
        "unconnected_gradients": "none",
    }
    assert tfjac.flags.graph_options("j_", flag_values=values) == {
        "strategy": "while_loop",
        "chunk_size": None,
        "unconnected_gradients": "none",
    }


def test_every_strategy_is_a_choice():
    for name in tfjac.strategies.names():
        values = parse("", f"--strategy={name}")
        assert tfjac.flags.options(flag_values=values)["strategy"] == name


def test_a_program_may_add_strategies_of_its_own():
    values = parse("", other_strategies=["all"], strategy="all")
    assert tfjac.flags.options(flag_values=values)["strategy"] == "all"


@pytest.mark.parametrize(
    "argument",
    [
        "--strategy=reverse",
        "--chunk_size=0",
        "--chunk_size=some",
        "--chunk_size=-3",
        "--unconnected_gradients=nan",
    ],
)
def test_what_cannot_be_is_refused(argument):
    with pytest.raises(flags.IllegalFlagValueError):
        parse("", argument)


def test_a_collision_names_the_prefix_as_the_way_out():
    values = parse()
    with pytest.raises(tfjac.errors.InvalidValueError, match="`prefix`.*another prefix"):
        tfjac.flags.define(flag_values=values)
    tfjac.flags.define("other_", flag_values=values)


def test_help_lists_the_flags_as_the_programs_own():
    values = parse("j_")
    own = {flag.name for flag in values.get_key_flags_for_module(__name__)}
    assert {"j_strategy", "j_chunk_size", "j_device"} <= own
