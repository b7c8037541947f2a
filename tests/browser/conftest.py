"""Debian's Chromium without a window, and every kind of page to look at in it."""

import os
import shutil

import pytest

from ..corpus import pages as made

SWITCHES = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)


@pytest.fixture(scope="session")
def chromium(tmp_path_factory):
    """A page of a Chromium with a profile of its own that reaches no network."""
    from playwright import sync_api  # noqa: PLC0415  (the extra "browser")

    found = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    if found is None:
        # These tests are asked for by name: a browser that did not look found nothing.
        pytest.fail("there is no Chromium: apt-get install chromium, or name one in CHROMIUM")
    profile = tmp_path_factory.mktemp("profile")
    with sync_api.sync_playwright() as driver:
        context = driver.chromium.launch_persistent_context(
            profile, executable_path=found, args=SWITCHES, offline=True
        )
        yield context.pages[0]
        context.close()


@pytest.fixture(scope="session")
def pages(tmp_path_factory):
    """A page of every kind."""
    return made(tmp_path_factory.mktemp("pages") / "all")
