"""What others wrote, as it may be shown and kept."""

import pytest

from fedsim.common.foreign_text import without_password


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("postgresql://u:pa/ss@host/db", "postgresql://host/db"),
        ("http://u:pa ss@w@host:80/x: refused", "http://host:80/x: refused"),
        ("http://u:12/3@host/x", "http://host/x"),
        ("http://token@host/x", "http://host/x"),
        ("a http://u:p@h/1 b http://v:q@i/2", "a http://h/1 b http://i/2"),
        ("http://h/x?user=me&password=a b&to=1: no", "http://h/x?user=me&password=…&to=1: no"),
        ("'http://h/?token=t1' failed", "'http://h/?token=…' failed"),
        (
            "http://h/?X-Amz-Signature=t1&Access_Key=k#a",
            "http://h/?X-Amz-Signature=…&Access_Key=…#a",
        ),
        ("http://h/?a=1 write to me@example.org", "http://h/?a=1 write to me@example.org"),
        ("http://h:5000/x: ask me@example.org", "http://h:5000/x: ask me@example.org"),
    ],
)
def test_no_url_tells_its_password_token_or_key_and_the_rest_is_kept(text: str, kept: str) -> None:
    assert without_password(text) == kept
