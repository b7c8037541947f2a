"""`fedsim init` writes a configuration that runs, with a schema beside it."""

import gzip
import json
import tomllib

import numpy as np
import pytest

from fedsim.configuration import documentation
from fedsim.configuration.files import load
from fedsim.learning.data import dealing, distribution

FEW = ("trials.count=4", "training.rounds=1", "--quiet", "trials.batch=4")
CANCER = ("--data", "breast-cancer")


@pytest.fixture
def patients(tmp_path):
    generator = np.random.default_rng(0)
    rows = [f"{age},{generator.random():.3f},{age % 2}" for age in range(80)]
    (tmp_path / "patients.csv").write_text("\n".join(["age,value,ill", *rows]) + "\n")
    return tmp_path / "patients.csv"


def test_what_it_writes_runs_and_says_of_every_key_what_it_means(
    fedsim, patients, tmp_path, without_pages
):
    file = tmp_path / "first.toml"
    answers = ("federation.clients=4", "federation.trust=local", "privacy.rho-beta=0.8")
    status, out, err = fedsim("init", file, "--data", patients, *answers, "--label", "ill")
    assert (status, err) == (0, "")
    assert out.splitlines()[-2:] == [
        f"  fedsim choose {file} --max-belief 0.8",
        f"  fedsim run {file}",
    ]
    config = load(file)
    assert (config.data.records, config.data.held_out) == (64, 16)
    assert (config.federation.clients, config.federation.trust) == (4, "local")
    assert config.privacy.rho_beta == 0.8
    assert config.privacy.delta == 0.0015  # 1/(10 n), rounded down to two digits
    said = " ".join(file.read_text().replace("\n# ", " ").split())
    for table, values in tomllib.loads(file.read_text()).items():
        for name in values:
            assert documentation.key(f"{table}.{name}").meaning in said
    status, _, err = fedsim("run", file, *FEW, "--out", tmp_path / "run")
    assert (status, err) == (0, "")
    assert (tmp_path / "run" / "report.json").exists()


def test_a_table_is_read_by_a_schema_whose_doubts_are_said_in_one_message(fedsim, tmp_path):
    generator = np.random.default_rng(0)
    months = generator.integers(60, size=80)
    ages = [f"{n % 9},5" if n > 6 else "" for n in range(80)]
    rows = [f"p{n};{ages[n]};{months[n]};{n % 2}" for n in range(80)]
    path, file = tmp_path / "own.csv", tmp_path / "first.toml"
    path.write_text("\n".join(["customer;age;months;ill", *rows]) + "\n")
    status, said, _ = fedsim("init", file, "--data", path, "--label", "ill")
    assert status == 0
    for sentence in (
        "identifiers, which are no features: customer",
        "the file was read as values separated by ';', decimal commas, utf-8",
        "gaps in age are a feature, so that no row is left out",
        "replace what its lines FROM RECORDS disclose",
    ):
        assert said.replace("\n", " ").count(sentence) == 1
    config = load(file)
    assert (config.data.records, config.data.held_out) == (64, 16)
    assert "FROM RECORDS" in (tmp_path / "first.schema.toml").read_text()
    status, _, err = fedsim("init", tmp_path / "first.tml", "--data", path, "--label", "ill")
    assert (status, "first.schema.toml' exists" in err) == (2, True)
    # A user who says how the table is read gets no schema.
    plain = ("data.exclude=customer", "--label", "ill")
    assert fedsim("init", tmp_path / "plain.toml", "--data", path, *plain)[0] == 0
    assert not load(tmp_path / "plain.toml").data.public_schema


def test_its_columns_divide_the_records_and_are_guessed_by_an_adversary(fedsim, tmp_path):
    """Also an identifier divides them; a number is named as the schema reads it."""
    draw = np.random.default_rng(0)
    ages, wards = draw.choice([20, 40, 60], 80), draw.choice(list("AB"), 80)
    ages[7] = 500
    rows = [f"p{n},{ages[n]},{wards[n]},{n % 2}" for n in range(80)]
    path, file = tmp_path / "own.csv", tmp_path / "first.toml"
    path.write_text("\n".join(["patient,age,ward,ill", *rows]) + "\n")
    assert fedsim("init", file, "--data", path, "--label", "ill", "federation.clients=2")[0] == 0
    for key in ("ward", "patient", "age"):
        changes = {"federation.partition": "key", "federation.partition-key": key}
        config = load(file, changes)
        split, client_of = distribution.held(config.data, config.federation, "")
        # The file's own values: what a schema clips is another person still.
        own = [row.split(",")[("patient", "age", "ward").index(key)] for row in rows]
        held = {value: set() for value in own}
        for place, client in zip(split.members, client_of, strict=True):
            held[own[place]].add(client)
        assert max(map(len, held.values())) == 1
        assert dealing.keys(config.federation, split).tolist() == [
            own[place] for place in split.members
        ]
    dataset = distribution.dataset(load(file).data, "")
    assert dataset.columns["age"] == pytest.approx(np.minimum(ages, 60), rel=1e-6)
    assert list(dataset.columns["ward"]) == list(wards)
    # Measures of columns and bits see shares of a range.
    shares = dataset.shares(dataset.train.features)
    assert (shares.min(), shares.max()) == (0, 1)
    np.testing.assert_array_equal(shares[:, 1:], dataset.train.features[:, 1:])
    gower = ("challenge.dissimilarity=gower", "--out", tmp_path / "run")
    assert fedsim("run", file, *FEW, *gower)[0] == 0
    for column, values in (("age", ("20", "40", "60")), ("ward", ("A", "B"))):
        out = tmp_path / column
        assert fedsim("attack", file, "--column", column, *FEW[:3], "--out", out)[0] == 0
        report = json.loads((out / "report.json").read_text())
        assert sorted(report["values"]) == list(values)


def _write(path, rows, separator):
    if separator is None:
        arrow = pytest.importorskip("pyarrow", reason="Parquet needs pyarrow")
        from pyarrow import parquet  # noqa: PLC0415

        ages, days = zip(*(row.split(",") for row in rows), strict=True)
        table = {"age": list(map(int, ages)), "days": list(map(float, days))}
        parquet.write_table(arrow.table(table), path)
        return
    content = "\n".join(["age,days", *rows]).replace(",", separator).encode()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)


def test_a_label_of_many_numbers_is_predicted_as_a_number(fedsim, tmp_path):
    rows = [f"{n % 7},{n % 31 + 0.5}" for n in range(120)]
    (tmp_path / "own.csv").write_text("\n".join(["age,days", *rows]) + "\n")
    for ending, separator in ((".tsv", "\t"), (".csv.gz", ","), (".parquet", None)):
        _write(tmp_path / f"own{ending}", rows, separator)
        same = tmp_path / f"{ending[1:4]}.toml"
        asked = ("--data", tmp_path / f"own{ending}", "--label", "days", "--quiet")
        assert fedsim("init", same, *asked)[0] == 0
        dataset = distribution.dataset(load(same).data, "")
        assert (len(dataset.train), list(dataset.columns)) == (120, ["age"])
    file = tmp_path / "first.toml"
    asked = ("--data", tmp_path / "own.csv", "data.label=days")
    status, said, _ = fedsim("init", file, *asked)
    assert (status, "predicted as a number from 0 to" in said) == (0, True)
    assert load(file).model.task == "regression"


@pytest.mark.parametrize(
    ("said", "records", "held_out"),
    [
        (("data.records=500",), 500, 69),  # all that are left
        (("data.records=560", "data.pool=3"), 560, 6),
        (("data.held-out=400",), 169, 400),
    ],
)
def test_what_is_not_said_fits_beside_what_is(said, records, held_out, fedsim, tmp_path):
    file = tmp_path / "sized.toml"
    assert fedsim("init", file, *CANCER, *said)[0] == 0
    config = load(file)
    assert (config.data.records, config.data.held_out) == (records, held_out)
    split, _ = distribution.held(config.data, config.federation, config.model.weights)
    assert len(split.pool) >= config.data.pool


def test_delta_of_a_round_number_of_records_is_not_rounded(fedsim, tmp_path):
    rows = [f"{number % 90},{number % 7},{number % 2}" for number in range(1250)]
    (tmp_path / "table.csv").write_text("\n".join(["age,value,ill", *rows]) + "\n")
    file = tmp_path / "first.toml"
    answers = ("--data", tmp_path / "table.csv", "--label", "ill", "federation.clients=4")
    assert fedsim("init", file, *answers)[0] == 0
    assert (load(file).data.records, load(file).privacy.delta) == (1000, 1e-4)
