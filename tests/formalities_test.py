"""Layering, names, docstrings and lists: cheap checks that keep the tree as it is meant to be."""

import ast
import doctest
import importlib
import inspect
import pathlib
import pkgutil

import numpy as np
import pytest
import tensorflow as tf

import tfjac

ROOT = pathlib.Path(tfjac.__file__).parent

# Each module imports modules of earlier rows only.
LAYERS = [
    {"errors"},
    {"fallback"},
    {"shapes", "tf_internals", "function_cache", "host_memory", "accumulation"}
    | {"accumulation.bracketing", "rates"},
    {"calibration"},
    {"graph_memo", "gradients", "elimination"},
    {"call_memo", "nominal"},
    {"matrices", "accumulation.factors"},
    {"accumulation.contraction"},
    {"graph", "graph.stops", "graph.sources", "rules.known"},
    {"graph.subgraph"},
    {"rules.kinds", "rules.sizes"},
    {"rules.entries", "rules.pointwise", "rules.movement", "rules.mixing", "rules.convolution"}
    | {"rules.lists", "rules.reshaping", "rules.indexing"},
    {"rules"},
    {"graph.lengths"},
    {"graph.naming", "graph.by_hand"},
    {"graph.states"},
    {"graph.dependence", "graph.positions", "graph.kernels", "graph.bodies"}
    | {"graph.handles", "graph.paths", "coverage"},
    {"graph.missing", "graph.counting", "rewriting", "rewriting.replacement"}
    | {"rewriting.handwritten"},
    {"rewriting.adjoints", "rewriting.convolutions", "rewriting.images", "rewriting.losses"}
    | {"rewriting.indices", "rewriting.normalization"}
    | {"rewriting.matrices", "rewriting.pointwise", "rewriting.python_functions"}
    | {"rewriting.running", "rewriting.segments", "rewriting.special"},
    {"rewriting.table"},
    {"rewriting.copies"},
    {"graph.sparsity", "stacks", "rule_checks", "accumulation.terms"},
    {"accumulation.sums", "accumulation.natives"},
    {"accumulation.local"},
    {"accumulation.movements", "accumulation.windows"},
    {"accumulation.maps"},
    {"sweeps", "tapes"},
    {"strategies.base"},
    {"strategies.mapping"},
    {"strategies.unstack", "strategies.while_loop", "strategies.vectorized", "strategies.forward"}
    | {"strategies.structural"},
    {"accumulation.opaque"},
    {"accumulation.memo"},
    {"accumulation.pieces"},
    {"accumulation.segments"},
    {"accumulation.directions", "accumulation.order", "accumulation.reductions"},
    {"accumulation.determinants"},
    {"strategies.cross_country"},
    {"strategies"},
    {"planning", "problems", "blocks"},
    {"independence", "nests"},
    {"call_signature"},
    {"construction", "products", "options"},
    {"jacobians", "quantities", "autotune"},
    {"estimates"},
    {"compiled"},
    {"prepared", "structure", "derived", "spectra", "operators", "laplacians"},
    {"second_order", "per_example"},
    {"linearized"},
    {"testing", "flags", "keras"},
    {""},
    {"bench", "bench.jobs", "bench.agreement", "bench.limit"},
    {"bench.records", "bench.worker", "bench.tensorflow_peers", "bench.own"},
    {"bench.child", "bench.tables"},
    {"bench.team", "bench.screen", "bench.plot"},
    {"bench.measurement"},
    {"bench.command"},
    {"audit", "audit.samples", "audit.differences", "audit.reasons"},
    {"audit.verdicts", "audit.pointwise", "audit.movement", "audit.reductions", "audit.matrices"}
    | {"audit.neighbors", "audit.losses", "audit.sparse", "audit.lists", "audit.composites"},
    {"audit.measure", "audit.families"},
    {"audit.table"},
    {"audit.command"},
    {"cli"},
    {"__main__"},
]


def modules():
    found = {"": ROOT / "__init__.py"}
    for info in pkgutil.iter_modules([str(ROOT)]):
        name = info.name
        path = ROOT / name.replace(".", "/")
        found[name] = path / "__init__.py" if info.ispkg else path.with_suffix(".py")
    for package in [n for n, p in found.items() if p.name == "__init__.py" and n]:
        for info in pkgutil.iter_modules([str(ROOT / package)]):
            found[f"{package}.{info.name}"] = ROOT / package / f"{info.name}.py"
    return found


def imports_of(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("tfjac"):
            base = node.module.removeprefix("tfjac").removeprefix(".")
            for alias in node.names:
                inner = f"{base}.{alias.name}".strip(".")
                yield inner if inner in modules() else base


def test_every_module_has_a_layer():
    assert set().union(*LAYERS) == set(modules())


@pytest.mark.parametrize("name", sorted(modules()))
def test_a_module_imports_only_from_lower_layers(name):
    level = {module: i for i, row in enumerate(LAYERS) for module in row}
    for imported in imports_of(modules()[name]):
        assert level[imported] < level[name], f"{name} imports {imported}"


def test_private_tensorflow_has_one_door():
    for name, path in modules().items():
        if name != "tf_internals":
            assert "tensorflow.python" not in path.read_text(), name
            assert "._call_flat" not in path.read_text(), name


def test_every_strategy_file_is_in_the_list():
    files = {p.stem for p in (ROOT / "strategies").glob("*.py")} - {"__init__", "base", "mapping"}
    assert files == {strategy.name for strategy in tfjac.strategies.STRATEGIES}


def test_the_face_is_small_and_names_only():
    assert sorted(tfjac.__all__) == tfjac.__all__
    assert len(tfjac.__all__) <= 42
    tree = ast.parse((ROOT / "__init__.py").read_text())
    assert not [n for n in tree.body if isinstance(n, (ast.FunctionDef, ast.ClassDef, ast.If))]
    for name in tfjac.__all__:
        assert getattr(tfjac, name) is not None


@pytest.mark.parametrize(
    "name", [n for n in tfjac.__all__ if inspect.isfunction(getattr(tfjac, n))]
)
def test_a_public_function_documents_arguments_result_errors_cost_and_example(name):
    function = getattr(tfjac, name)
    text = inspect.getdoc(function)
    for heading in ("Args:", "Returns:", "Raises:", "Cost:", "Example:"):
        assert heading in text, f"{name} lacks {heading}"
    for parameter in inspect.signature(function).parameters:
        assert f"{parameter}:" in text, f"{name} does not say what {parameter} is"
    assert inspect.signature(function).return_annotation is not inspect.Signature.empty


@pytest.mark.parametrize("name", sorted(modules()))
def test_examples_in_docstrings_run(name):
    module = importlib.import_module(f"tfjac.{name}".strip("."))
    results = doctest.testmod(
        module,
        extraglobs={"np": np, "tf": tf, "tfjac": tfjac},
        optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE,
    )
    assert results.failed == 0


def test_the_version_in_setup_is_that_of_the_package():
    assert tfjac.__version__.count(".") == 2
