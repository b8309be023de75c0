"""The public list is sorted, complete and documented."""

import inspect
import subprocess
import sys

import pytest

import dpframe

PUBLIC = list(dpframe.__all__)


def test_sorted_and_complete():
    assert sorted(PUBLIC) == PUBLIC
    found = {
        name
        for name, value in vars(dpframe).items()
        if not name.startswith("_") and not (inspect.ismodule(value) and name != "datasets")
    }
    # Those that import scikit-learn are found when asked for, and not before.
    lazy = set(dpframe._LAZY)
    assert found | lazy == set(PUBLIC)
    assert not found & lazy
    assert set(PUBLIC) <= set(dir(dpframe))


def test_unknown_names_are_attribute_errors():
    with pytest.raises(AttributeError, match="module 'dpframe' has no attribute 'Sanitiser'"):
        _ = dpframe.Sanitiser


@pytest.mark.parametrize("name", sorted(dpframe._LAZY))
def test_lazy_names_are_what_their_modules_export(name):
    value = getattr(dpframe, name)
    assert value.__name__ == name
    assert value.__module__.startswith(f"dpframe.{dpframe._LAZY[name]}")


@pytest.mark.parametrize("name", PUBLIC)
def test_documented(name):
    value = getattr(dpframe, name)
    assert (inspect.getdoc(value) or "").strip()
    if inspect.isclass(value):
        for member, method in vars(value).items():
            if not member.startswith("_") and (inspect.isfunction(method) or isinstance(method, property)):
                assert (inspect.getdoc(getattr(value, member)) or "").strip(), f"{name}.{member}"


def test_errors_all_have_one_root():
    for name in PUBLIC:
        value = getattr(dpframe, name)
        if inspect.isclass(value) and issubclass(value, BaseException):
            root = dpframe.DpframeWarning if issubclass(value, Warning) else dpframe.DpframeError
            assert issubclass(value, root)


def test_every_error_is_public():
    from dpframe import errors

    assert set(errors.__all__) <= set(PUBLIC)
    assert all(name in (errors.__doc__ or "") for name in errors.__all__)


def test_import_is_quiet_and_leaves_heavy_modules_alone():
    heavy = ("sklearn", "matplotlib", "polars", "rich", "scipy.stats", "scipy.optimize", "threadpoolctl")
    code = f"import sys, dpframe; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout.strip(), done.stderr) == ("[]", "")
    # The check can fail: asking for such a name imports scikit-learn.
    code = code.replace("import sys, dpframe;", "import sys, dpframe; dpframe.Sanitizer;")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "sklearn" in done.stdout


def test_a_first_answer_leaves_scipy_stats_alone():
    code = """
import sys, dpframe as dpf
frame = dpf.datasets.make_census(2_000, columns=["sex", "age", "hobbies"])
safe = dpf.sanitize(frame, epsilon=4, delta=1e-6, key=bytes(32))
safe.dp.value_counts("sex"), safe.dp.quantile("age"), safe.dp.support("hobbies"), safe.dp.count({"age": (20, 40)})
print([m for m in ("scipy.stats", "sklearn") if m in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
