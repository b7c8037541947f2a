"""An app of a form that cannot be audited is refused by its cause, and others are audited."""

import re
import shutil
import sys
from pathlib import Path

import pytest

from adversaries.errors import InputError
from fedsim.audits.app.audit import audit, audit_directory
from fedsim.audits.app.execution import Script, opened
from fedsim.audits.child_process.channel import AppFailedError
from fedsim.audits.judgement.claim import Verdict

FORMS = Path(__file__).parents[3] / "apps" / "forms"


def form(directory, server, client):
    """Return a copy of the app with other components."""
    copied = shutil.copytree(FORMS, directory / "forms")
    described = (copied / "pyproject.toml").read_text(encoding="utf-8")
    described = described.replace("forms.strategy:app", f"forms.{server}")
    described = described.replace("forms.client:app", f"forms.{client}")
    (copied / "pyproject.toml").write_text(described, encoding="utf-8")
    return copied


def test_a_package_without_init_is_loaded_audited_and_forgotten(tmp_path):
    with opened(FORMS, 3, {}) as app:
        assert "forms" in sys.modules
        assert audit(app, trials=20, seed=0).verdict is Verdict.NO_CLAIM
    assert not [name for name in sys.modules if name.partition(".")[0] == "forms"]
    # Its namesake elsewhere is another app, which must not be taken for the first.
    with opened(form(tmp_path, "messages:trains", "client:app"), 3, {}):
        assert str(tmp_path) in str(sys.modules["forms.messages"].__file__)


def test_no_client_evaluates_in_a_trial_whoever_did_in_the_honest_run():
    """Two of eight do; six trials that ask the same two come once in 28^6."""
    with opened(FORMS, 8, {"num-server-rounds": 1}) as app:
        app.honest(0)
        evaluated = sys.modules["forms.client"].EVALUATED
        assert len(evaluated) == 2
        for seed in range(1, 7):
            app.scripted(seed, Script(0, 1.0, None, "num-examples", 1e-3, 0))
        assert len(evaluated) == 2


QUERIES = "trained no model through Strategy.start"


OLDER = r"older flwr\.server stack\. .*SecAgg\+"


@pytest.mark.parametrize(
    ("server", "client", "why"),
    [
        ("workflow:app", "older_client:app", OLDER),
        ("server_fn:app", "client:app", OLDER),
        ("messages:analytics", "client:asked", QUERIES),
        ("messages:analytics", "client:broken", QUERIES),
        ("messages:trains", "client:app", QUERIES),
        ("strategy:trees", "client:app", r"no floating-point numbers"),
    ],
)
def test_a_form_that_cannot_be_audited_is_refused_by_its_cause(tmp_path, server, client, why):
    copied, refused = form(tmp_path, server, client), pytest.raises(InputError, match=why)
    with opened(copied, 3, {}) as app, refused:
        app.honest(0)


def test_what_a_client_failed_by_comes_before_what_the_server_failed_by(tmp_path):
    directory = form(tmp_path, "messages:analytics", "client:app")
    client = directory / "forms" / "client.py"
    code = client.read_text(encoding="utf-8")
    broken = code.replace("    bins = ", "    import nowhere\n    bins = ")
    client.write_text(broken, encoding="utf-8")
    with opened(directory, 3, {}) as app, pytest.raises(AppFailedError) as failure:
        app.honest(0)
    assert re.search(
        "ValueError: no valid replies; before that, client 0 failed: ModuleNotFoundError: No "
        "module named 'nowhere'",
        str(failure.value),
    )


def test_a_missing_package_is_named_and_where_the_app_names_it(tmp_path):
    directory = form(tmp_path, "strategy:app", "client:app")
    (directory / "forms" / "client.py").write_text("import nowhere\n", encoding="utf-8")
    why = r"No module named 'nowhere'; install the dependencies that its pyproject\.toml lists"
    with pytest.raises(InputError, match=why), opened(directory, 3, {}):
        pass


def test_a_script_is_refused(tmp_path):
    (tmp_path / "server.py").write_text("import flwr\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"no pyproject\.toml; .*start_server"):
        audit_directory(tmp_path, trials=20)
