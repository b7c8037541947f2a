"""What a contributor runs, in the active environment: pipx install nox, then nox -s lint test."""

import nox

SPELLED = (
    *("fedsim", "adversaries", "papers", "tests", "docs", "configs", ".ci", "changelog.d"),
    *(".github", "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "RELEASING.md", "SECURITY.md"),
)

nox.options.default_venv_backend = "none"
nox.options.sessions = ["lint", "test"]


@nox.session
def lint(session: nox.Session) -> None:
    """Check style, format, types and spelling."""
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("mypy")
    session.run("codespell", *SPELLED)


@nox.session
def test(session: nox.Session) -> None:
    """Run the tests of guarantees; `nox -s test -- tests/fedsim/privacy` those of one room."""
    session.run("pytest", "-n", "auto", *session.posargs)


@nox.session
def outer(session: nox.Session) -> None:
    """Run the tests of wording, pages, exit statuses and processes."""
    session.run("pytest", "-n", "auto", "-m", "outer and not slow and not browser")


@nox.session
def slow(session: nox.Session) -> None:
    """Run the slow tests; those that start Flower's processes a file at a time."""
    session.run("pytest", "-n", "auto", "-m", "slow and not flower and not long")
    session.run("pytest", "-n", "3", "--dist", "loadfile", "-m", "slow and flower and not long")


@nox.session
def docs(session: nox.Session) -> None:
    """Build the site, with pip install -e ".[docs]"."""
    session.run("mkdocs", "build", "--strict", env={"NO_MKDOCS_2_WARNING": "1"})


@nox.session
def bench(session: nox.Session) -> None:
    """Measure speed beside what a user would take instead, in a smoke size."""
    session.run("python", "tests/benchmarks", "--smoke", *session.posargs)
