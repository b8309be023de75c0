"""The public list is sorted, complete and documented."""

import ast
import doctest
import importlib
import inspect
import re
import subprocess
import sys
import types

import pandas as pd
import pytest
from public_names import LISTED, PAGE

import dpframe
from dpframe import errors
from dpframe.api import public

PUBLIC = list(dpframe.__all__)
MOST_LISTED = 36
"""Names that completion after ``dpf.`` may list."""


def test_sorted_and_complete():
    assert sorted(PUBLIC) == PUBLIC
    assert len(PUBLIC) <= MOST_LISTED
    assert set(dir(dpframe)) == {*PUBLIC, "__version__"}
    assert dir(dpframe.errors) == sorted(dpframe.errors.__all__)


def imports_for_type_checkers(module: types.ModuleType) -> dict[str, str]:
    """Return the module of each name that type checkers import in a module."""
    (block,) = (
        node
        for node in ast.parse(inspect.getsource(module)).body
        if isinstance(node, ast.If) and ast.unparse(node.test) == "typing.TYPE_CHECKING"
    )
    return {name.name: node.module for node in block.body for name in node.names if name.name != "*"}


def test_type_checkers_and_python_find_each_name_in_one_place():
    listed, others = imports_for_type_checkers(public), imports_for_type_checkers(dpframe)
    assert set(listed) == set(PUBLIC)
    assert {*others, *dpframe.errors.__all__} - set(PUBLIC) == set(public.WHERE) - set(PUBLIC)
    for name, module in (listed | others).items():
        assert getattr(dpframe, name) is getattr(importlib.import_module(module), name)


def test_deprecated_names_do_as_the_new_ones_and_name_them(tmp_path):
    frame, path = pd.DataFrame({"sex": ["F", "M"] * 50}), tmp_path / "safe.parquet"
    frame.to_parquet(tmp_path / "in.parquet")
    with pytest.warns(FutureWarning, match=r"^sanitize_parquet is deprecated .*; write sanitize\(source, target"):
        info = dpframe.sanitize_parquet(tmp_path / "in.parquet", path, 1.0, delta=0, spaces={"sex": ["F", "M"]})
    with pytest.warns(FutureWarning, match=r"^read_parquet is deprecated .*; write read\(path\)$"):
        assert dpframe.read_parquet(path).dp.release == info


def test_a_public_name_is_not_hidden_by_a_folder_of_the_same_name():
    verb = dpframe.sanitize
    dpframe.sanitize = types.ModuleType("dpframe.sanitize")  # what importing such a folder does
    assert dpframe.sanitize is verb


def test_unknown_names_are_attribute_errors():
    with pytest.raises(AttributeError, match="module 'dpframe' has no attribute 'Sanitiser'"):
        _ = dpframe.Sanitiser


def test_folders_are_found_when_asked_for():
    code = "import sys, dpframe; assert 'dpframe.spaces' not in sys.modules; print(dpframe.spaces.as_space.__name__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "as_space"


# `ReleaseFrame` is DataFrame but for type checkers.
@pytest.mark.parametrize("name", sorted({*PUBLIC, *public.WHERE} - {"ReleaseFrame"}))
def test_names_are_their_own(name):
    value = getattr(dpframe, name)
    assert value.__name__.removeprefix("dpframe.") == name
    assert value is getattr(
        importlib.import_module(value.__module__) if hasattr(value, "__module__") else dpframe, name
    )


@pytest.mark.parametrize("name", PUBLIC)
def test_documented(name):
    value = getattr(dpframe, name)
    assert (inspect.getdoc(value) or "").strip()
    if inspect.isclass(value):
        for member, method in vars(value).items():
            if not member.startswith("_") and (inspect.isfunction(method) or isinstance(method, property)):
                assert (inspect.getdoc(getattr(value, member)) or "").strip(), f"{name}.{member}"


def test_every_public_name_and_every_statistic_has_an_example():
    """With its output, which the doctests of the suite compare."""
    public = {
        name: getattr(dpframe, name) for name in PUBLIC if not isinstance(getattr(dpframe, name), types.ModuleType)
    }
    statistics = {
        f"Estimates.{name}": member
        for name, member in inspect.getmembers(dpframe.Estimates)
        if not name.startswith("_")
    }
    assert len(statistics) > 25
    examples = {
        name: doctest.DocTestParser().get_examples(inspect.getdoc(value) or "")
        for name, value in {**public, **statistics}.items()
    }
    assert not [name for name, lines in examples.items() if not any(line.want for line in lines)]


@pytest.mark.parametrize("name", LISTED)
def test_the_reference_lists_what_there_is(name):
    module, _, last = name.rpartition(".")
    assert hasattr(importlib.import_module(module), last)


def test_the_whole_reference_is_read():
    assert len(LISTED) == len(re.findall(r"(?m)^   [A-Za-z][\w.]*$", PAGE))


@pytest.mark.parametrize("name", errors.__all__)
def test_errors_have_one_root_are_documented_and_found_at_the_top(name):
    value = getattr(errors, name)
    root = errors.DpframeWarning if issubclass(value, Warning) else errors.DpframeError
    assert issubclass(value, root)
    assert getattr(dpframe, name) is value
    assert name in (errors.__doc__ or "")
    assert name not in PUBLIC


def test_import_is_quiet_and_leaves_heavy_modules_alone():
    heavy = (
        "scipy",
        "sklearn",
        "matplotlib",
        "polars",
        "rich",
        "typer",
        "cryptography",
        "dpframe.api.accessor",
        "dpframe.api.verbs",
        "dpframe.estimate",
    )
    code = f"import sys, dpframe; dir(dpframe); print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout.strip(), done.stderr) == ("[]", "")


@pytest.mark.slow
def test_a_name_that_needs_a_heavy_module_imports_it():
    """So that the check above can fail."""
    code = "import sys, dpframe; dpframe.Sanitizer; print('sklearn' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "True"


@pytest.mark.slow
def test_a_first_call_leaves_what_it_does_not_use_alone():
    code = """
import sys, dpframe as dpf, pandas as pd
few = pd.DataFrame({"sex": ["f", "m"] * 1_000, "age": range(2_000)})
few.dp.sanitize(epsilon=4, delta=1e-6, spaces={"sex": ["f", "m"], "age": (0, 1999)})
print([m for m in ("scipy", "sklearn") if m in sys.modules])
frame = dpf.datasets.make_census(2_000, columns=["sex", "age", "hobbies"])
safe = frame.dp.sanitize(epsilon=4, delta=1e-6, key=bytes(32))
print([m for m in ("dpframe.estimate", "dpframe.report") if m in sys.modules])
safe.dp.value_counts("sex"), safe.dp.quantile("age"), safe.dp.support("hobbies"), safe.dp.count({"age": (20, 40)})
print([m for m in ("scipy.stats", "sklearn") if m in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["[]", "[]", "[]"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "call",
    [
        'plan(target={"age": 50.0}, spaces={"sex": ["f", "m"], "age": (0, 1999)}).explain()',
        "sanitize(epsilon=4, delta=1e-6, key=bytes(32)).dp.report().to_html()",
    ],
)
def test_reading_a_plan_or_a_report_needs_no_scipy(call):
    code = f"""
import sys, dpframe, pandas as pd
few = pd.DataFrame({{"sex": ["f", "m"] * 1_000, "age": range(2_000)}})
few.dp.{call}
print([m for m in ("scipy", "sklearn", "matplotlib", "importlib.metadata") if m in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["[]"]


@pytest.mark.slow
def test_imports_collect_no_garbage_and_leave_collection_as_it_was():
    code = """
import gc, dpframe as dpf
seen = []
gc.callbacks.append(lambda phase, info: seen.append(info["generation"]))
dpf.Ledger
print(gc.isenabled(), len(seen) < 5)  # one follows when collection is back
gc.disable()
dpf.Queries
print(gc.isenabled(), len(seen) < 5)  # one follows when collection is back
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["True True", "False True"]
