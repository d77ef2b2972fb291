"""A plugin of pytest: holds each test to what its list in suite.txt says."""

import pathlib

import pytest

MUST_FAIL = {"[passes]": None, "[fails]": True, "[either]": False}


def wanted():
    """What is wanted of each test: nothing but to pass, or whether it must fail."""
    tests, must_fail = {}, None
    for line in (pathlib.Path(__file__).parent / "suite.txt").read_text().splitlines():
        if line in MUST_FAIL:
            must_fail = MUST_FAIL[line]
        elif "::" in line:
            if line in tests:
                raise pytest.UsageError(f"suite.txt: {line} is listed twice")
            tests[line] = must_fail
    return tests


def pytest_collection_modifyitems(items):
    tests = wanted()
    for item in items:
        must_fail = tests[item.nodeid]
        if must_fail is not None:
            # Strict: one that must fail and passes is a failure, for the list is wrong.
            item.add_marker(pytest.mark.xfail(strict=must_fail))
