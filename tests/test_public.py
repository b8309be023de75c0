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
    assert found == set(PUBLIC)


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
    code = "import sys, dpframe; print([m for m in ('sklearn', 'matplotlib', 'polars', 'rich') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout.strip(), done.stderr) == ("[]", "")
