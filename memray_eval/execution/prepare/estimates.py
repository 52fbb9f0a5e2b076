"""The estimate of a job: what a run of it would take."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import date

from memray_eval.config.schema import RunConfig
from memray_eval.execution.capacity import local_capacity
from memray_eval.execution.estimate import Estimate, estimate
from memray_eval.execution.plan import engine_device
from memray_eval.execution.prepare.resolve import resolve
from memray_eval.execution.prepare.scanning import scan_dataset
from memray_eval.execution.ray.cluster_spec import ClusterSpec
from memray_eval.execution.ray.placement import plan_placement
from memray_eval.execution.schedule import schedule, wave_pools
from memray_eval.execution.waiting import Waiting, no_waiting


def estimate_of(
    config: RunConfig,
    *,
    samples: int | None = None,
    cluster_spec: ClusterSpec | None = None,
    node_usd_per_hour: Mapping[str, float] | None = None,
    say: Callable[[str], None] = lambda _: None,
    waiting: Waiting = no_waiting,
    today: date | None = None,
) -> Estimate:
    """The estimate of a run `today`, or of one with so many `samples` like those found; on this
    machine's CPUs, or on the nodes of a cluster's file, whose hours may have a price by group.
    Starts nothing and makes no call. Raises ConfigError, DataError."""
    spec = resolve(config, today=today)
    placement = None
    if cluster_spec is not None:  # planned by what is up at first, and grows
        device = engine_device(spec, cluster_spec.gpus)
        waves = schedule(spec, cluster_spec.at_first(), device)
        pools = [wave_pools(spec, wave, cluster_spec.at_most(), device) for wave in waves]
        placement = plan_placement(cluster_spec, spec, pools, device)
    spec = replace(spec, read=spec.read.with_columns(say))
    with waiting(f"the scan of {spec.read.dataset}"):
        scan = scan_dataset(spec.read, [])
        is_shared = spec.assumptions.engine is not None and spec.read.reader.by_context
        if is_shared and samples and samples > scan.n_samples and spec.read.engines > 1:
            # As all of them would be cut; 1 stands for a single engine
            engines = spec.read.engines * scan.n_samples / (samples + 0.5)
            scan = scan_dataset(replace(spec.read, engines=engines), [])
    capacity = placement.capacity if placement else local_capacity(spec.cluster)
    return estimate(
        spec,
        scan,
        capacity,
        samples=samples,
        placement=placement,
        node_usd_per_hour={**spec.assumptions.node_usd_per_hour, **(node_usd_per_hour or {})},
        today=today,
    )
