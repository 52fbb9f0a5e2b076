"""Scans a large dataset's files at the same time, in Ray tasks."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterator, Sequence

import ray

from memray_eval.datasets.scan import ScanSource, SourceScan
from memray_eval.datasets.shards import Shard

AHEAD = 2  # files scanned for each CPU before the first of them is taken: they differ in size

logger = logging.getLogger(__name__)


class ScanTasks:
    """An EachSource (datasets/scan.py) over so many `cpus` of the cluster: those of its nodes
    without GPUs, on which Ray puts such tasks first."""

    def __init__(self, cpus: float) -> None:
        self._cpus = max(1, int(cpus))

    def __call__(self, work: ScanSource, sources: Sequence[Shard]) -> Iterator[SourceScan]:
        logger.info("scanning %d files in tasks, %d at a time", len(sources), self._cpus)

        def scan(source: Shard) -> SourceScan:  # Ray takes functions, not what only acts as one
            return work(source)

        scan_file = ray.remote(num_cpus=1, max_retries=2)(scan)
        waiting = deque(sources)
        running = deque[tuple[Shard, ray.ObjectRef]]()
        while waiting or running:
            while waiting and len(running) < self._cpus * AHEAD:
                source = waiting.popleft()
                running.append((source, scan_file.remote(source)))
            source, result = running.popleft()
            try:
                yield ray.get(result)
            except ray.exceptions.RayError as error:
                # The nodes do not see the file, or one was lost: this process reads it, or says why
                logger.warning("%s is scanned by the driver: %s", source.path, error)
                yield work(source)
