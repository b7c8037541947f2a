"""What a release is made of, and whether it is ready: RELEASING.md and the workflows call this.

python .ci/release.py ready TAG       refuse an owner or a changelog that is not filled in
python .ci/release.py build DIR       wheel and sdist, built twice and compared
python .ci/release.py bundle DIR      the Flower app bundle
python .ci/release.py licences SITE   refuse a licence that Apache-2.0 does not go with
python .ci/release.py advisories SITE print the known vulnerabilities of an environment
"""

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from email.message import Message
from importlib.metadata import distributions
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).parents[1]

PLACEHOLDER = "_OWNER_"
"""Stands in pyproject.toml and .github/CODEOWNERS until the owner is known."""

SUFFIXES = {".py", ".pyi", ".typed", ".toml"}
"""Kinds of file that a wheel may hold, beside its metadata."""

METADATA = {"METADATA", "WHEEL", "RECORD", "entry_points.txt", "licenses/LICENSE"}

COMPATIBLE = re.compile(
    r"Apache|\bMIT\b|\bBSD|0BSD|\bISC\b|\bPSF|Python Software Foundation|Python-2\.0|CNRI-Python"
    r"|MPL|Mozilla Public|\bHPND\b|MIT-CMU|Unlicense|Zlib|ZPL|CC0|public domain|LLVM|bzip2"
    r"|The Free Threading",
    re.I,
)
"""Licences of packages that an Apache-2.0 program may depend on."""

COPYLEFT = re.compile(r"(?<!L)GPL|SSPL|Commons Clause|GNU General Public", re.I)
"""Licences that would bind fedsim, but for a choice ("MIT OR GPL") and runtime libraries of GCC."""

RUNTIME = re.compile(r"GPL-3\.0[\w-]*(?: |-)WITH(?: |-)GCC-exception[\w.-]*", re.I)

EXCEPTIONS = {
    "nvidia-": "NVIDIA's libraries: PyTorch's wheel for GPUs asks for them; fedsim ships none",
    "cuda-": "NVIDIA's libraries: PyTorch's wheel for GPUs asks for them; fedsim ships none",
}
"""Packages, by the beginning of their names, whose licence fedsim need not go with, and why."""


class RefusedError(Exception):
    """A release must not go on; the text says why."""


def project() -> dict:
    """Return pyproject.toml."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


# --- Is it ready?


def ready(tag: str) -> None:
    """Raise RefusedError, with every reason, unless this tree may be published as a tag."""
    table = project()
    number = table["project"]["version"]
    owner = table["tool"]["hatch"]["metadata"]["hooks"]["custom"]["owner"]
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    owners = (ROOT / ".github" / "CODEOWNERS").read_text(encoding="utf-8")
    fragments = [path.name for path in (ROOT / "changelog.d").glob("*.md")]
    reasons = {
        f"the owner is still {PLACEHOLDER}; fill it in (RELEASING.md)": owner == PLACEHOLDER,
        f".github/CODEOWNERS does not name @{owner}": f"@{owner}" not in owners.split(),
        f"the tag is {tag}, but the version is {number}; tag v{number}": tag != f"v{number}",
        f"CHANGELOG.md has no section {number}; run towncrier": f"## {number} " not in changelog,
        f"changelog.d still has {', '.join(fragments)}; run towncrier": bool(fragments),
    }
    if wrong := [reason for reason, holds in reasons.items() if holds]:
        raise RefusedError("; ".join(wrong))


# --- Wheel and sdist


def build(out: Path) -> None:
    """Build wheel and sdist into a folder, again elsewhere, and write SHA256SUMS.

    The second wheel is built from the unpacked sdist, so that the sdist is complete. Raises
    RefusedError if a byte differs, or a file is missing or too much.
    """
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        again = Path(temporary)
        _hatchling(ROOT, out, "sdist", "wheel")
        _hatchling(ROOT, again, "sdist")
        (sdist,) = out.glob("*.tar.gz")
        with tarfile.open(sdist) as file:
            file.extractall(again, filter="data")
        _hatchling(again / sdist.name.removesuffix(".tar.gz"), again, "wheel")
        (wheel,) = out.glob("*.whl")
        for first in (wheel, sdist):
            if first.read_bytes() != (again / first.name).read_bytes():
                raise RefusedError(f"{first.name} differs when it is built again")
    _compare(wheel.name, _in_wheel(wheel), _expected_in_wheel(wheel))
    _compare(sdist.name, _in_sdist(sdist), _expected_in_sdist())
    sums = "".join(f"{_sha256(each)}  {each.name}\n" for each in (sdist, wheel))
    (out / "SHA256SUMS").write_text(sums)
    print(sums, end="")


def _hatchling(source: Path, out: Path, *targets: str) -> None:
    """Build targets with the date of the commit; the files of an sdist have it too."""
    date = os.environ.get("SOURCE_DATE_EPOCH") or _git("log", "-1", "--format=%ct")
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(out)]
    command += [word for target in targets for word in ("-t", target)]
    environment = os.environ | {"SOURCE_DATE_EPOCH": date.strip()}
    subprocess.run(command, cwd=source, check=True, env=environment, stdout=subprocess.DEVNULL)


def _git(*arguments: str) -> str:
    command = ["git", "-C", str(ROOT), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def tracked() -> list[str]:
    """Return the names of the repository's files."""
    return _git("ls-files").splitlines()


def _in_wheel(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as file:
        return set(file.namelist())


def _in_sdist(sdist: Path) -> set[str]:
    with tarfile.open(sdist) as file:
        return {each.name.partition("/")[2] for each in file if each.isfile()}


def _expected_in_wheel(wheel: Path) -> set[str]:
    names = [name for name in tracked() if name.startswith(("adversaries/", "fedsim/"))]
    names += [f"fedsim/{name}" for name in tracked() if name.startswith("configs/")]
    if other := [name for name in names if PurePosixPath(name).suffix not in SUFFIXES]:
        raise RefusedError(f"a wheel has no place for {', '.join(other)}")
    information = "-".join(wheel.name.split("-")[:2]) + ".dist-info"
    return {*names, *(f"{information}/{name}" for name in METADATA)}


def _expected_in_sdist() -> set[str]:
    listed = project()["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]
    whole = {name for name in tracked() if f"/{name.partition('/')[0]}" in listed}
    pages = {name for name in tracked() if "/" not in name and name.endswith(".md")}
    return whole | pages | {"PKG-INFO", ".gitignore"}


def _compare(name: str, found: set[str], expected: set[str]) -> None:
    for words, names in (("lacks", expected - found), ("should not hold", found - expected)):
        if names:
            raise RefusedError(f"{name} {words} {', '.join(sorted(names)[:5])}")


# --- Flower app bundle


def bundle(out: Path) -> None:
    """Write the app as Flower's hub takes it (format version 1), and its bundle.

    The hub wants a table in `license`, where the package index wants a text, and the account of
    the publisher. So the bundle is built from a copy, which `flwr app publish` uploads too.
    """
    import tomli_w  # noqa: PLC0415  (fedsim has it; the other commands need no fedsim)

    table = project()
    app = table["tool"]["flwr"]["app"]
    app["fab-format-version"] = 1
    app["publisher"] = table["tool"]["hatch"]["metadata"]["hooks"]["custom"]["owner"]
    app["fab-include"] += ["LICENSE", "README.md"]
    kept = ("name", "version", "description", "requires-python", "dependencies")
    about = {key: table["project"][key] for key in kept} | {"license": {"file": "LICENSE"}}
    place = out / table["project"]["name"]
    shutil.rmtree(place, ignore_errors=True)
    shipped = {path for pattern in app["fab-include"] for path in ROOT.glob(pattern)}
    for path in sorted(shipped):
        target = place / path.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    written = {"project": about, "tool": {"flwr": {"app": app}}}
    (place / "pyproject.toml").write_text(tomli_w.dumps(written), encoding="utf-8")
    flwr = Path(sys.executable).parent / "flwr"
    subprocess.run([flwr, "build", "--app", place.resolve()], cwd=out, check=True)


# --- Licences and advisories of an environment


def licences(site: Path) -> None:
    """Raise RefusedError unless every package of an environment has a licence for Apache-2.0.

    site: its folder site-packages.
    """
    stated = {each.metadata["Name"]: _stated(each.metadata) for each in distributions(path=[site])}
    excepted = tuple(EXCEPTIONS)
    wrong = [
        f"{name} ({text.strip() or 'states none'})"
        for name, text in stated.items()
        if not name.lower().startswith(excepted) and not _goes_with_apache(text)
    ]
    if wrong:
        raise RefusedError(f"licences to look at: {', '.join(sorted(wrong))}")
    print(f"{len(stated)} packages, each under a licence that goes with Apache-2.0")


def _goes_with_apache(text: str) -> bool:
    binding = COPYLEFT.search(RUNTIME.sub("", text)) and " OR " not in text
    return bool(COMPATIBLE.search(text)) and not binding


def _stated(metadata: Message) -> str:
    """Return what a package's metadata state of its licence: fields and classifiers, in short."""
    expression = str(metadata.get("License-Expression") or "")
    text = str(metadata.get("License") or "")[:100]  # some put the whole licence there
    classifiers = metadata.get_all("Classifier") or []
    return " ".join(
        [expression, text, *(each for each in classifiers if each.startswith("License"))]
    )


def advisories(site: Path) -> None:
    """Print the known vulnerabilities of an environment's packages; it decides nothing.

    Says by name that it skips, and how many, where the advisories cannot be had.
    site: its folder site-packages.
    """
    command = [sys.executable, "-m", "pip_audit", "--path", str(site), "--format", "json"]
    result = subprocess.run(
        [*command, "--progress-spinner", "off"], capture_output=True, text=True, check=False
    )
    try:
        rows = json.loads(result.stdout)["dependencies"]
    except json.JSONDecodeError:
        reason = result.stderr.strip().splitlines()[-1:] or ["no answer"]
        print(f"skipped: pip-audit: {reason[0][:200]}")
        return
    known = [row for row in rows if "skip_reason" not in row]
    if len(known) < len(rows):
        print(f"skipped: pip-audit: no advisories for {len(rows) - len(known)} of {len(rows)}")
    for row in known:
        for each in row["vulns"]:
            fixed = ", ".join(each["fix_versions"]) or "no version"
            print(f"advisory: {row['name']} {row['version']}: {each['id']}, fixed in {fixed}")
    print(f"advisories: {len(known)} packages looked up")


def main() -> None:
    """Run one command; a refusal is one line and exit status 2."""
    commands = {"ready": ready, "build": build, "bundle": bundle}
    commands |= {"licences": licences, "advisories": advisories}
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("command", choices=commands)
    parser.add_argument("argument", help="TAG, DIR or SITE")
    chosen = parser.parse_args()
    argument = chosen.argument if chosen.command == "ready" else Path(chosen.argument)
    try:
        commands[chosen.command](argument)
    except RefusedError as refusal:
        print(f"release: {refusal}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
