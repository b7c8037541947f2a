"""What others wrote, as it may be shown and kept."""

import pytest

from fedsim.common.secrets_in_text import without_password


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("postgresql://u:p@ss@host/db", "postgresql://host/db"),
        ("https://user:pa/ss@host", "https://host"),
        ("https://h/x?sig=a%2Fb&my_auth=c&key=d", "https://h/x?sig=…&my_auth=…&key=…"),
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
        ("Authorization: Bearer abc.d-e: refused", "Authorization: Bearer …: refused"),
        ("{'Authorization': 'Basic dTpw'}", "{'Authorization': 'Basic …'}"),
        ("sent Bearer abc", "sent Bearer …"),
        ("post token=t1 to h", "post token=… to h"),
        ("http://h/cb#access_token=t1&x=2", "http://h/cb#access_token=…&x=2"),
        ("MLFLOW_TRACKING_PASSWORD=hunter2 is wrong", "MLFLOW_TRACKING_PASSWORD=… is wrong"),
        ("AWS_SECRET_ACCESS_KEY='a b' is wrong", "AWS_SECRET_ACCESS_KEY=… is wrong"),
        ("{'password': 'hunter2'}", "{'password': …}"),
        ("http://h/token/t1/x: no", "http://h/token/…/x: no"),
        (f"https://h/services/T1/{'X' * 24}", "https://h/services/T1/…"),
        ("https://h/bot11020:AAHdqTcvCH1vGWJx/send", "https://h/…/send"),
        ("http://h/api/2.0/mlflow/runs", "http://h/api/2.0/mlflow/runs"),
        ("set federation.partition-key=label", "set federation.partition-key=label"),
        ("has no pad_token_id: say which", "has no pad_token_id: say which"),
        ("unknown key 'x': give one", "unknown key 'x': give one"),
        ("http://h/?a=1 write to me@example.org", "http://h/?a=1 write to me@example.org"),
        ("http://h:5000/x: ask me@example.org", "http://h:5000/x: ask me@example.org"),
    ],
)
def test_no_text_tells_a_password_token_or_key_and_the_rest_is_kept(text, kept):
    assert without_password(text) == kept
