"""What a release publishes and refuses to publish; RELEASING.md says how one is made."""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
RELEASING = (ROOT / "RELEASING.md").read_text(encoding="utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
VERSION = PROJECT["project"]["version"]
OWN_LINK = re.compile(rf"https://[\w.-]+/[\w-]+/fedsim/(?:blob/)?v{re.escape(VERSION)}/([^)#]*)")
PATH = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"


def shell(command, place, **more):
    """Run a command as a workflow does."""
    words = ["bash", "-euo", "pipefail", "-c", command]
    return subprocess.run(
        words,
        cwd=place,
        env=os.environ | {"PATH": PATH} | more,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def copy(tmp_path):
    """Return a folder with the files that decide whether a tree may be published."""
    for name in (".ci/release.py", "pyproject.toml", "CHANGELOG.md", ".github/CODEOWNERS"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    shutil.copytree(ROOT / "changelog.d", tmp_path / "changelog.d")
    text = (tmp_path / "pyproject.toml").read_text()
    (tmp_path / "pyproject.toml").write_text(re.sub('owner = ".*"', 'owner = "_OWNER_"', text))
    (tmp_path / ".github" / "CODEOWNERS").write_text("* @_OWNER_\n")
    return tmp_path


def test_nothing_is_published_before_owner_changelog_and_tag_are_right(copy):
    refused = shell("python .ci/release.py ready v9.9", copy)
    assert refused.returncode == 2
    assert refused.stderr.count("\n") == 1
    for reason in ("owner is still _OWNER_", "the tag is v9.9", "no section", "changelog.d still"):
        assert reason in refused.stderr
    (fill_in,) = re.findall(r"^ +(sed .*)$", RELEASING, re.M)
    assert shell(fill_in.replace("ACCOUNT", "some-account"), copy).returncode == 0
    assert "* @some-account" in (copy / ".github" / "CODEOWNERS").read_text()
    join = f"towncrier build --keep --version {VERSION} && rm changelog.d/*.md"
    assert shell(join, copy).returncode == 0
    accepted = shell(f"python .ci/release.py ready v{VERSION}", copy)
    assert (accepted.returncode, accepted.stderr) == (0, "")


def test_the_page_on_the_index_has_absolute_links_to_what_exists():
    printed = shell("python -m hatchling metadata", ROOT)
    metadata = json.loads(printed.stdout)
    owner = PROJECT["tool"]["hatch"]["metadata"]["hooks"]["custom"]["owner"]
    assert all(f"/{owner}" in each or f"//{owner}." in each for each in metadata["urls"].values())
    page = metadata["readme"]["text"]
    links = re.findall(r"\]\(([^)]*)\)", page)
    assert len(links) > 20
    assert all(link.startswith(("https://", "#")) for link in links)
    ours = [place for link in links for place in OWN_LINK.findall(link)]
    assert {"docs/verdict.png", "docs/start/tutorial.md"} <= set(ours)
    assert [place for place in ours if not (ROOT / place).exists()] == []
    assert "{owner}" not in page


def test_every_fragment_of_the_changelog_is_joined_and_its_links_lead_somewhere():
    draft = shell(f"towncrier build --draft --version {VERSION}", ROOT).stdout
    for fragment in (ROOT / "changelog.d").glob("*.md"):
        for line in fragment.read_text().splitlines():
            assert line in draft
    for path in re.findall(r"\]\((?!https?:)([^)#]*)", draft):
        assert (ROOT / path).exists(), path


def test_a_licence_that_would_bind_fedsim_is_refused(tmp_path):
    stated = {
        "one": "License-Expression: MIT OR GPL-3.0-only",
        "two": "Classifier: License :: OSI Approved :: BSD License",
        "three": "License-Expression: BSD-3-Clause AND GPL-3.0-or-later WITH GCC-exception-3.1",
        "nvidia-four": "License: Proprietary",
    }
    bad = {"five": "License-Expression: MIT AND GPL-3.0-only", "six": "Summary: no licence"}
    for site, names in (("good", stated), ("bad", stated | bad)):
        for name, line in names.items():
            place = tmp_path / site / f"{name}-1.dist-info"
            place.mkdir(parents=True)
            (place / "METADATA").write_text(f"Name: {name}\nVersion: 1\n{line}\n")
    good = shell(f"python .ci/release.py licences {tmp_path / 'good'}", ROOT)
    assert good.stdout.startswith("4 packages"), good.stderr
    refused = shell(f"python .ci/release.py licences {tmp_path / 'bad'}", ROOT)
    assert refused.returncode == 2
    assert re.findall(r"(\w+) \(", refused.stderr) == ["five", "six"]


def _jobs():
    for path in WORKFLOWS:
        workflow = yaml.safe_load(path.read_text())
        assert workflow["permissions"] == {}, path
        for name, job in workflow["jobs"].items():
            yield path.name, name, job


def _name(step):
    return step["name"] if "run" in step else step["uses"].partition("@")[0]


def test_actions_are_pinned_and_no_step_has_a_word_of_a_stranger_in_its_script():
    for _, _, job in _jobs():
        for step in job.get("steps", ()):
            if "uses" in step:
                assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", step["uses"]), step
            assert "${{" not in step.get("run", "")


def test_the_hosted_checks_run_every_stage():
    (line,) = re.findall(r"^ +stages=\((.*)\)$", (ROOT / ".ci" / "run").read_text(), re.M)
    (checks,) = (path for path in WORKFLOWS if path.name == "ci.yml")
    jobs = yaml.safe_load(checks.read_text())["jobs"]
    assert {*jobs["stage"]["strategy"]["matrix"]["stage"], "wheel"} == set(line.split())


@pytest.mark.slow
def test_the_steps_that_need_no_host_run_in_a_clone(tmp_path):
    pytest.importorskip("twine", reason='pip install -e ".[release]"')
    clone, tag = tmp_path / "fedsim", f"v{VERSION}"
    (fill_in,) = re.findall(r"^ +(sed .*)$", RELEASING, re.M)
    prepare = (
        f"git clone --quiet {ROOT} {clone} && cd {clone} && {fill_in} && "
        f"towncrier build --yes --version {VERSION} && git add --all && "
        "git -c user.name=x -c user.email=x@localhost commit --quiet --message Release"
    )
    prepared = shell(prepare.replace("ACCOUNT", "some-account"), tmp_path)
    assert prepared.returncode == 0, prepared.stderr
    tried = {("ready", "ready"), ("build", "build"), ("build", "bundle")}
    for file, name, job in _jobs():
        for step in job.get("steps", ()):
            if file == "release.yml" and (name, _name(step)) in tried:
                done = shell(step["run"], clone, TAG=tag, PYTHONPATH=str(ROOT))
                assert done.returncode == 0, (step["run"], done.stdout, done.stderr)
                tried.discard((name, _name(step)))
    assert not tried
    made = {path.relative_to(clone).as_posix() for path in clone.glob("*/*") if path.is_file()}
    stem = f"dist/fedsim_identifiability-{VERSION}"
    assert {f"{stem}.tar.gz", f"{stem}-py3-none-any.whl"} <= made
    (bundle,) = clone.glob("bundle/some-account.fedsim-identifiability.*.fab")
    shutil.copy(bundle, tmp_path)
    again = shell("python .ci/release.py bundle bundle", clone, PYTHONPATH=str(ROOT))
    assert again.returncode == 0
    assert bundle.read_bytes() == (tmp_path / bundle.name).read_bytes()
