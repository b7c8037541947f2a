"""What others wrote, as it may be shown and kept."""

import pytest

from fedsim.common.foreign_text import without_password


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("postgresql://u:pa/ss@host/db", "postgresql://host/…"),
        ("http://u:pass@w@host:80/x: refused", "http://host:80/… refused"),
        ("http://token@host", "http://host"),
        ("a http://u:p@h/1 b http://v:q@i/2", "a http://h/… b http://i/…"),
        ("'http://h?token=t1' failed", "'http://h?…' failed"),
        ("http://h#access_token=t1&x=2", "http://h#…"),
        (f"https://h/services/T1/{'X' * 24}", "https://h/…"),
        ("Authorization: Bearer abc.d-e: refused", "Authorization: Bearer …: refused"),
        ("{'Authorization': 'Basic dTpw'}", "{'Authorization': 'Basic …'}"),
        ("sent Bearer abc", "sent Bearer …"),
        ("post token=t1 to h", "post token=… to h"),
        ("MLFLOW_TRACKING_PASSWORD=hunter2 is wrong", "MLFLOW_TRACKING_PASSWORD=… is wrong"),
        ("{'password': 'hunter2'}", "{'password': '…'}"),
        ("set federation.partition-key=label", "set federation.partition-key=label"),
        ("has no pad_token_id: say which", "has no pad_token_id: say which"),
        ("unknown key 'x': give one", "unknown key 'x': give one"),
        ("http://h:5000/x: ask me@example.org", "http://h:5000/… ask me@example.org"),
    ],
)
def test_no_text_tells_a_password_token_or_key_and_the_rest_is_kept(text: str, kept: str) -> None:
    assert without_password(text) == kept
