"""Dataset, run folder and cache on an S3 server: a run, its reports, a kill -9 and a resume from
elsewhere; and what is said where S3 does not let us in."""

import asyncio
import contextlib
import json
import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import fs

from memray_eval.datasets.reading import SampleReader
from memray_eval.datasets.scan import scan
from memray_eval.errors import ConfigError, DataError
from memray_eval.execution.prepare.origins import read_config, write_config
from memray_eval.execution.resume_state import drop_duplicates, load_resume_state
from memray_eval.judges.call_cache import CallCache
from memray_eval.judges.paid_calls import PaidCalls, SegmentLog
from memray_eval.models.embedded_model import resolve_model
from memray_eval.results.run_folder import RunFolder
from memray_eval.results.schema import to_table
from memray_eval.storage.paths import locate, write_whole
from memray_eval.types import Record
from tests.build import build_call, build_config, judging_job, write_responses
from tests.conftest import REPOSITORY
from tests.processes.killing import (
    CALLS,
    IN_FLIGHT,
    METRICS,
    UNITS,
    books,
    counted,
    gone,
    ran,
    running,
    some_moment,
    wait_for,
)
from tests.servers.process import ServerProcess, serving_process
from tests.servers.s3 import KEY, SECRET, S3Server

ROOT = "s3://bucket/tests"
LATENCY_S = 0.2


def put(url: str, data: bytes) -> None:
    write_whole(*locate(url), data)


def at_home(home: Path, environment: dict[str, str]) -> dict[str, Any]:
    """How a command has a working directory, a cache and a log of its own, all in `home`."""
    home.mkdir(exist_ok=True)
    own = {"PYTHONPATH": str(REPOSITORY), "MEMRAY_EVAL_CACHE": str(home / "cache")}
    return {"log": home / "log", "cwd": home, "env": os.environ | own | environment}


def ended(arguments: list[str], environment: dict[str, str], home: Path, code: int = 0) -> str:
    """What a command said that must end with `code`."""
    status, text = ran("memray_eval", *arguments, **at_home(home, environment))
    assert status == code, text[-3000:]
    return text


def configured(tmp_path: Path, server: ServerProcess, out: str, **judging: str) -> Path:
    """A job that is whole on S3, its dataset with it."""
    data = write_responses(tmp_path, UNITS)
    put(f"{out}/data.jsonl", data.read_bytes())
    config = judging_job(
        data, tmp_path, server.base_url, METRICS, actors=1, max_in_flight=IN_FLIGHT, **judging
    )
    config = config.model_copy(
        update={"rows_per_block": 10, "dataset": f"{out}/data.jsonl", "out": f"{out}/results"}
    )
    path = tmp_path / "job.yaml"
    path.write_text(config.model_dump_json())
    return path


def only_run(out: str) -> RunFolder:
    filesystem, inner = locate(f"{out}/results")
    (kept,) = [
        info
        for info in filesystem.get_file_info(fs.FileSelector(inner))
        if "calls" not in info.base_name
    ]
    return RunFolder(f"{out}/results/{kept.base_name}")


def test_every_kind_of_dataset(open_s3: S3Server) -> None:
    rows = [
        {"id": f"D{number}", "query": "How do I sleep?", "memory": {"age": "40"}}
        for number in range(5)
    ]
    table = pa.BufferOutputStream()
    pq.write_table(
        pa.Table.from_pylist([row | {"memory": json.dumps(row["memory"])} for row in rows]), table
    )
    put(f"{ROOT}/data/a.jsonl", "".join(json.dumps(row) + "\n" for row in rows).encode())
    put(f"{ROOT}/data/a.json", json.dumps({"samples": rows}).encode())
    put(f"{ROOT}/data/a.parquet", table.getvalue().to_pybytes())
    for row in rows:
        put(f"{ROOT}/data/folder/{row['id']}/sample.json", json.dumps(row).encode())
    reading = SampleReader(suite="memory")
    names = ("a.jsonl", "a.json", "a.parquet", "folder")
    kept = [scan(f"{ROOT}/data/{name}", reading, on_problem=pytest.fail) for name in names]
    assert [result.n_samples for result in kept] == [5] * 4
    assert len({result.fingerprint for result in kept}) == 1


def test_a_small_file_is_one_request_and_listed_at_once(open_s3: S3Server) -> None:
    filesystem, inner = locate(f"{ROOT}/one")
    before = open_s3.calls()
    write_whole(filesystem, f"{inner}/part.zst", b"x" * 100_000)
    assert open_s3.calls() - before == {"PUT": 1}
    (info,) = filesystem.get_file_info(fs.FileSelector(inner))
    assert (info.base_name, info.size) == ("part.zst", 100_000)  # not packed for its name


def test_paid_calls_are_written_together_and_merged(open_s3: S3Server, tmp_path: Path) -> None:
    folder, n_actors, n_calls = f"{ROOT}/paid/calls", 40, 10

    async def actor(calls: PaidCalls, number: int) -> None:
        for call in range(n_calls):
            await calls.put([build_call(f"{number}-{call}")])

    async def main(calls: PaidCalls) -> int:
        before = open_s3.calls()["PUT"]
        await asyncio.gather(*(actor(calls, number) for number in range(n_actors)))
        n_objects = open_s3.calls()["PUT"] - before
        await calls.compact()
        return n_objects

    cache = CallCache(tmp_path / "calls", is_scratch=True)
    with contextlib.closing(PaidCalls(cache, SegmentLog(folder))) as calls:
        assert asyncio.run(main(calls)) <= n_actors * n_calls / 10
    log = SegmentLog(folder)
    (segment,) = log.load()
    assert len({call.key for call in segment.calls}) == n_actors * n_calls
    assert log.n_unreadable == 0


def test_a_key_that_may_not_write_is_told_for_each_call(
    open_s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "reader")

    async def main(calls: PaidCalls) -> None:
        for key in "ab":
            with pytest.raises(ConfigError, match=r"s3://.*/refused: access denied"):
                await calls.put([build_call(key)])
        assert await calls.get(["a", "c"]) == [build_call("a"), None]

    cache = CallCache(tmp_path / "calls", is_scratch=True)
    with contextlib.closing(PaidCalls(cache, SegmentLog(f"{ROOT}/refused"))) as calls:
        asyncio.run(main(calls))


def test_an_index_is_one_request_and_a_whole_part_two(open_s3: S3Server, record: Record) -> None:
    """A request takes 100 ms, and a large run has a thousand parts."""
    folder = RunFolder(f"{ROOT}/parts/run")
    units = [f"{number:016x}" for number in range(2048)]
    table = pa.concat_tables([to_table([record])] * 2048).set_column(0, "unit_id", pa.array(units))

    def requests(call: Callable[[], object]) -> Counter[str]:
        before = open_s3.calls()
        call()
        return open_s3.calls() - before

    assert requests(lambda: folder.write_part(table)) == {"PUT": 1}
    folder.write_parts([table.slice(0, 1)])
    parts = folder.list_parts()
    assert len(parts) == 2
    assert requests(lambda: list(folder.read_indexes(parts))) == {"GET": 2}
    assert requests(lambda: folder.read_part(parts[0].name)) == {"HEAD": 1, "GET": 1}
    with folder.local_records() as copied:
        assert requests(lambda: copied.count_rows() == 2049) == {}
        assert sum(part.num_rows for part in folder.read_parts(folder.parts())) == 2049


def test_a_part_that_grows_after_it_was_listed_is_indexed(
    open_s3: S3Server, record: Record
) -> None:
    folder = RunFolder(f"{ROOT}/growing")
    folder.write_part(to_table([record]), name="part-a.parquet")
    listed = folder.list_parts()
    grown = [record.model_copy(update={"unit_id": f"{number:016x}"}) for number in range(40)]
    folder.write_part(to_table(grown), name="part-a.parquet")
    assert [len(index.units) for index in folder.read_indexes(listed)] == [40]


def test_parts_are_read_side_by_side(open_s3: S3Server, record: Record) -> None:
    folder = RunFolder(f"{ROOT}/many/run")
    for number in range(64):
        row = record.model_copy(update={"unit_id": f"{number:016x}"})
        folder.write_part(to_table([row]))
    open_s3.set_latency(LATENCY_S)
    try:
        state = load_resume_state(folder)
        assert drop_duplicates(folder) == 0
        at_once = open_s3.at_once()
    finally:
        open_s3.set_latency(0.0)
    assert len(state.finished) == 64
    assert at_once >= 8


@pytest.mark.night
def test_killed_and_resumed_elsewhere(open_s3: S3Server, tmp_path: Path) -> None:
    """A machine is lost in the middle, and the run goes on in a process that shares nothing with it
    but S3. Then its reports, beside a run that nobody killed."""
    environment, first, second = open_s3.environment(), tmp_path / "first", tmp_path / "second"
    with serving_process(latency_s=LATENCY_S) as server:
        config = configured(tmp_path, server, f"{ROOT}/killed", cache="auto")
        with running("memray_eval", "run", str(config), **at_home(first, environment)) as process:
            wait_for(server, some_moment(), process)
            children = psutil.Process(process.pid).children(recursive=True)
            for lost in (process, *children):  # the whole machine, not the driver alone
                with contextlib.suppress(psutil.NoSuchProcess):
                    lost.kill()
        gone(children)
        folder = only_run(f"{ROOT}/killed")
        before = len(folder.parts())
        log = ended(["resume", folder.path], environment, second)
        kept = books(folder, server)
        counted(f"S3, {before} parts written before", kept)
        kept.hold(IN_FLIGHT)
        sessions = folder.read_manifest()["sessions"]
        assert [session["status"] for session in sessions] == ["killed", "finished"]
        (segment,) = SegmentLog(f"{folder.path}/calls").load()  # both sessions' calls, merged
        assert len(segment.calls) == CALLS
        server.reset()
        config = configured(
            tmp_path, server, f"{ROOT}/whole", cache=f"{ROOT}/killed/results/{folder.run_id}/calls"
        )
        log += ended(["run", str(config), "--limit=20"], environment, second)
        assert server.stats()["n_answered"] == 0  # the first run's calls, out of its folder
    whole = only_run(f"{ROOT}/whole")
    log += ended(["report", whole.path, "--html"], environment, second)
    log += ended(["compare", folder.path, whole.path], environment, second)
    filesystem, inner = locate(f"{whole.path}/report.html")
    assert filesystem.get_file_info(inner).size > 10_000
    log += (first / "log").read_text() + json.dumps(folder.read_manifest())
    log += read_config(folder).model_dump_json()
    assert SECRET not in log
    assert KEY not in log


@pytest.mark.night
def test_a_model_in_a_bucket_answers_on_an_engine(open_s3: S3Server, tmp_path: Path) -> None:
    """Its tokenizer and its weights come by S3, once each, and nothing of it from a hub."""
    pytest.importorskip("vllm")
    url, data = f"{ROOT}/models/small", tmp_path / "rows.jsonl"
    for file in Path(resolve_model("embedded", weights=True)).iterdir():
        put(f"{url}/{file.name}", file.read_bytes())
    data.write_text('{"id": "a", "query": "Hello?"}\n{"id": "b", "query": "And now?"}\n')
    job = tmp_path / "job.yaml"
    engine = {"max_model_len": 1024, "kv_cache_gib": 1}
    candidate = {"name": "kept", "model": url, "sampling": {"max_tokens": 4}}
    job.write_text(json.dumps({"candidates": [candidate], "engine": engine}))
    words = ["generate", str(job), f"--dataset={data}", f"--out={tmp_path / 'out'}"]
    before = open_s3.calls()["GET"]
    ended(words, open_s3.environment() | {"HF_HUB_OFFLINE": "1"}, tmp_path / "home")
    n_read = open_s3.calls()["GET"] - before
    (run,) = (tmp_path / "out").iterdir()
    answers = [record.response for record in RunFolder(str(run)).each()]
    assert [bool(answer and answer.text) for answer in answers] == [True, True]
    ended(words, open_s3.environment(), tmp_path / "home")
    assert open_s3.calls()["GET"] - before < n_read + 20  # listings
    denied = open_s3.environment("denied")
    log = ended(words, denied, tmp_path / "stranger", code=2)
    assert f"{url}: access denied" in log
    assert "Traceback" not in log


def test_one_process_at_a_time(open_s3: S3Server) -> None:
    folder, second = RunFolder(f"{ROOT}/held/run"), RunFolder(f"{ROOT}/held/run")
    with (
        folder.held(),
        pytest.raises(ConfigError, match="another process is at work in s3://"),
        second.held(),
    ):
        pytest.fail("two are at work")
    with second.held():
        assert folder.parts() == []


def test_a_cache_that_cannot_be_used_is_told_first(open_s3: S3Server) -> None:
    config = build_config(judging={"cache": "s3://nowhere/calls"})
    folder = RunFolder(f"{ROOT}/bad-cache/run")
    with pytest.raises(ConfigError, match="there is no bucket 'nowhere'"):
        write_config(folder, config)
    with pytest.raises(DataError, match=r"has no run\.yaml"):
        read_config(folder)


@pytest.mark.parametrize(
    ("change", "bucket", "code", "message"),
    [
        ("AWS_ACCESS_KEY_ID=denied", "bucket", 2, "access denied (ACCESS_DENIED): its key must be"),
        ("AWS_ACCESS_KEY_ID= AWS_SECRET_ACCESS_KEY=", "bucket", 2, "there is no AWS_ACCESS_KEY_ID"),
        ("A=", "nowhere", 2, "there is no bucket 'nowhere'"),
        ("AWS_ENDPOINT_URL=http://127.0.0.1:9", "bucket", 3, "cannot be reached at http://127.0.0"),
    ],
    ids=["denied", "no credentials", "no bucket", "unreachable"],
)
def test_what_is_wrong_is_one_message(
    s3: S3Server, tmp_path: Path, change: str, bucket: str, code: int, message: str
) -> None:
    changed, url = dict(word.split("=", 1) for word in change.split()), f"s3://{bucket}/x"
    log = ended(["report", url], s3.environment() | changed, tmp_path / "home", code)
    assert message in log
    assert url in log
    assert "Traceback" not in log
    assert len(log.splitlines()) == 1


def test_who_may_only_read_is_told_before_anything_runs(open_s3: S3Server, tmp_path: Path) -> None:
    with serving_process() as server:
        config = configured(tmp_path, server, f"{ROOT}/readonly")
        log = ended(["run", str(config)], open_s3.environment("reader"), tmp_path / "home", 2)
        assert server.stats()["n_requests"] == 0
    assert "access denied (ACCESS_DENIED)" in log
    assert f"{ROOT}/readonly/results/" in log
    assert "Traceback" not in log
