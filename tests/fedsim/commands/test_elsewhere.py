"""`--workers` and `--cluster` as a user types them: what is refused, before anything is written."""

import pytest


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--workers", "0"], "--workers is 0"),
        (["--workers", "2", "--cluster", "127.0.0.1:8786"], "exclude each other"),
        (["--insecure"], "--cluster-tls and --insecure need --cluster"),
        (["--cluster", "10.0.0.5:8786"], "10.0.0.5 is another machine"),
        (["--workers", "2", "privacy.noise-source=system"], "leave out --workers"),
    ],
)
def test_what_cannot_be_trained_elsewhere_is_refused_in_one_line(
    fedsim, experiment, tmp_path, options, why
):
    status, out, err = fedsim("run", experiment, "--out", tmp_path / "run", *options)
    said = " ".join(err.split())
    assert (status, out) == (2, "")
    assert why in said
    assert not (tmp_path / "run").exists()
