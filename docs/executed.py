"""The site's pages that something is run for: sample reports and notebooks with their output.

mkdocs calls `on_files`; `mkdocs.yml` names this file. Results are kept in `build/executed/` under a
digest of all that they are computed from, so that only a change of the code runs it again.
"""

import base64
import hashlib
import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
CORPUS = ROOT / "tests" / "corpus.py"
NOTEBOOKS = ROOT / "docs" / "notebooks"
GALLERY = "start/gallery.md"

ROW = re.compile(r"^\| ([A-Z][^|]*?) \|(?: ([^|]*?) \|)?", re.M)
"""A row of the gallery's table: the name of a kind of page, and the question that it answers."""

CARD = """\
<figure class="sample"><div>
<iframe src="../gallery/{kind}.html" title="{name}, in small" loading="lazy" tabindex="-1"></iframe>
</div><figcaption><a href="../gallery/{kind}.html">{name}</a>: {question}</figcaption></figure>
"""
"""A sample, shown small, and its question."""

PAGE = re.compile(r"^([a-z-]+) (samples/\S+)$", re.M)
"""A line of what `corpus.py pages` prints: a kind, and where its page lies."""

EXECUTE = """
import sys, tempfile, nbformat
from jupyter_client import AsyncKernelManager
from nbclient import NotebookClient
notebook = nbformat.read(sys.argv[1], as_version=4)
with tempfile.TemporaryDirectory() as sockets:
    kernel = AsyncKernelManager(kernel_name="python3", transport="ipc", ip=sockets + "/kernel")
    NotebookClient(notebook, km=kernel, timeout=300, startup_timeout=300).execute(
        cleanup_kc=True  # end the kernel, which is not the client's own
    )
nbformat.write(notebook, sys.argv[2])
"""
"""A notebook is run by a kernel that is reached by files.

By default a kernel is told TCP ports that were free a moment before. Another kernel that starts at
the same time may take one of them, and the first then dies.
"""


def on_files(files: Any, config: Any) -> Any:
    """Add a sample page of every kind, and a page of each notebook, to the site's files."""
    from mkdocs.structure.files import File  # noqa: PLC0415  # an extra: the tests do without it

    kept = ROOT / "build" / "executed" / _digest()
    for older in kept.parent.glob("*"):
        if older != kept:
            shutil.rmtree(older)
    kept.mkdir(parents=True, exist_ok=True)
    notebooks = sorted(NOTEBOOKS.glob("*.ipynb"))
    with ThreadPoolExecutor() as workers:
        samples = workers.submit(_samples, kept / "gallery")
        executed = list(workers.map(lambda each: _executed(each, kept / each.name), notebooks))
    for kind, page in samples.result().items():
        files.append(File.generated(config, f"gallery/{kind}.html", content=page))
    for path in executed:
        text, pictures = as_markdown(path)
        files.append(File.generated(config, f"notebooks/{path.stem}.md", content=text))
        for name, picture in pictures.items():
            files.append(File.generated(config, f"notebooks/{name}", content=picture))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Link the gallery's kinds to their samples, and other pages to notebooks as they are shown."""
    if page.file.src_uri == GALLERY:
        cards = (
            CARD.format(kind=kind_of(name), name=name, question=question)
            for name, question in ROW.findall(markdown)
        )
        table = ROW.sub(
            lambda row: f"| [{row[1]}](../gallery/{kind_of(row[1])}.html) | {row[2]} |", markdown
        )
        return "\n".join([table, "\n## Every page in small\n", *cards])
    return re.sub(r"(\]\([^)#:]*)\.ipynb\)", r"\1.md)", markdown)


def kind_of(name: str) -> str:
    """Return the kind of page that a row of the gallery names, as `corpus.PAGES` has it."""
    return name.lower().replace(" ", "-")


def _digest() -> str:
    """Return a digest of the code, the notebooks and what they read."""
    digest = hashlib.sha256()
    names = ("adversaries", "fedsim", "tests/apps", "tests/golden", "docs/notebooks")
    folders = [ROOT / name for name in names]
    paths = [
        path for folder in folders for path in folder.rglob("*") if "__pycache__" not in path.parts
    ]
    for path in sorted([*paths, CORPUS, Path(__file__)]):
        if path.is_file():
            digest.update(f"{path.relative_to(ROOT)}\n".encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def _samples(folder: Path) -> dict[str, str]:
    """Return a page of every kind, made where none is kept in the folder."""
    index = folder / "index.txt"
    if not index.exists():
        folder.mkdir(exist_ok=True)
        index.with_suffix(".new").write_text(_run(CORPUS, "pages", "samples", folder=folder))
        index.with_suffix(".new").rename(index)
    # The commands print lines of their own before those of the pages.
    pages = PAGE.findall(index.read_text(encoding="utf-8"))
    return {kind: (folder / page).read_text(encoding="utf-8") for kind, page in pages}


def _executed(notebook: Path, result: Path) -> Path:
    """Return where the notebook lies with its output, after it ran if it has not."""
    if not result.exists():
        new = result.with_suffix(".new")
        _run("-c", EXECUTE, notebook, new, folder=result.parent)
        new.rename(result)
    return result


def _run(*arguments: str | Path, folder: Path) -> str:
    """Return what a script prints that runs on one thread in a folder."""
    done = subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=folder,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{arguments[0]} failed: {done.stderr[-4000:]}")
    return done.stdout


def as_markdown(notebook: Path) -> tuple[str, dict[str, bytes]]:
    """Return a notebook with its output as a page, and its pictures by the names of their files."""
    import nbformat  # noqa: PLC0415

    pictures: dict[str, bytes] = {}
    said = []
    for cell in nbformat.read(notebook, as_version=4).cells:
        if cell.cell_type == "markdown":
            said.append(re.sub(r"\.ipynb\)", ".md)", cell.source))
            continue
        said.append(f"```python\n{cell.source}\n```")
        for output in cell.outputs:
            data = output.get("data", {"text/plain": output.get("text", "")})
            if "image/png" in data:
                name = f"{notebook.stem}-{len(pictures) + 1}.png"
                pictures[name] = base64.b64decode(data["image/png"])
                said.append(f"![What the code above draws]({name})")
            elif "text/html" in data:
                said.append(f"<div>{' '.join(data['text/html'].split())}</div>")
            else:
                said.append(f"```text\n{data['text/plain'].rstrip()}\n```")
    link = f'<a href="{notebook.name}" download>Download the notebook</a>'
    return "\n\n".join([*said, link]) + "\n", pictures
