"""Lines that processes append to, and what a kill leaves of them."""

from pathlib import Path

from memray_eval.stores.port import JsonLines, read_folder


def test_a_line_that_a_kill_cut_off_is_not_read_and_spoils_no_other(tmp_path: Path) -> None:
    path = tmp_path / "a/b.jsonl"
    lines = JsonLines(str(path))
    assert lines.read() == []
    lines.append([{"n": 1}, {"n": 2}])
    with path.open("a") as file:
        file.write('{"n": 3, "text": "cut')
    JsonLines(str(path)).append([{"n": 4}])
    assert lines.read() == [{"n": 1}, {"n": 2}, {"n": 4}]
    assert read_folder(str(tmp_path)) == {"a/b.jsonl": lines.read()}
    lines.write([{"n": 5}])
    assert lines.read() == [{"n": 5}]
    assert read_folder(str(tmp_path / "none")) == {}
