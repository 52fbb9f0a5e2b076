"""Names of earlier versions, and what to do instead: dotted keys of jobs, options, commands,
suites, metrics. CHANGELOG.md says the same under "Removed"."""

from fnmatch import fnmatchcase

# The names, or KEY=VALUE, parted by spaces, and the rest of the sentence "NAME was withdrawn: ..."
_WITHDRAWN = """
estimates emotion_words: leave the key out, and name a judge with `judge: PROVIDER/MODEL`
questions judging.questions --fit-questions: name a judge, `judge: PROVIDER/MODEL`
improve: revise the rubric in a file, `rubrics: {METRIC: FILE.md}`, and `calibrate` again
babilong graphwalks mrcr: `dataset make` makes none: the suite reads the published files (hf://)
stop_at --stop-at limit_order: take fewer samples with --limit; a larger one holds the smaller one's
calibration --calibration --save --label --queue --overlap --corrected: `calibrate RUN --sheet` \
writes answers to label, `calibrate RUN --labels SHEET` reads them
--languages: `dataset make needles` asks in English; longbench and infinitebench have Chinese tasks
--documents: write rows of {query, answers, context} for the suite qa
nolima nolima_contains lveval --needles --books: write a suite for your copy
graphwalks_card_f1: name `graphwalks_f1`, which reads the list of the last line
risk_over_context: read `risk_escalation` over the turns of sessions
repeats_itself: write a metric of your own, FILE.py:NAME
--preset: write the columns with --map; report/CALIBRATION.md has those of five published files
constraints_followed: lm-eval's task ifeval has them; or write a metric, FILE.py:NAME
--cluster --node-usd: `estimate` tells calls, tokens and dollars; for the rest run one wave, --limit
assumptions.engine assumptions.node_usd_per_hour: leave it out; run one wave with --limit
sinks.endpoint: set OTEL_EXPORTER_OTLP_ENDPOINT, as for OpenTelemetry's own SDK
servers.*.pool: put a gateway (such as LiteLLM's proxy) before the accounts; name it MODEL@URL
judging.limits_at: give each cluster its part of the limit in `judging.limits`
cluster.phases=auto: write `apart` if GPUs would wait for judges, else leave the key out
judging.actors={*: write how many there are
judging.price.*.cache_write_1h_usd: leave it out; for a judge of Anthropic's it is twice `input_usd`
servers.*.price.cache_write_1h_usd: leave it out; for a judge of Anthropic's it is twice `input_usd`
affect.tts_model affect.voice affect.cpus affect.batch_size: leave the key out
judging.mode=auto: write `judging.mode: batch` or `live`; `estimate` says what either costs
judging.batch.min_calls: leave it out; `judging.mode: live` suits a few calls
judging.batch.limits: set `judging.batch.calls` and `judging.batch.at_once`
judging.batch.on_expired judging.batch.rounds judging.batch.tries: leave it out; the rest is asked \
live
judging.breaker.failures judging.breaker.fatal judging.breaker.longest_probe_s: leave it out; \
`probe_s` and `outage_s` stay
judging.on_unparsed: write `judging.on_judge_failure: default`, which says the same
judging.layout: leave it out; what calls share comes first where the model's prompt cache pays off
--prompt-file --response-file: write `--prompt "$(cat FILE)"`, `--response "$(cat FILE)"`
--all-pairs pairs.rounds pairs.earlier: leave it out; --limit takes fewer questions of every two
"""
INSTEAD = {
    name: text
    for line in _WITHDRAWN.strip().splitlines()
    for names, _, text in [line.partition(": ")]
    for name in names.split()
}


def what_instead(name: str) -> str | None:
    """One sentence for a name that was withdrawn, None for any other; `*` is the user's own part of
    a name."""
    text = next((text for names, text in INSTEAD.items() if fnmatchcase(name, names)), None)
    return None if text is None else f"{name} was withdrawn: {text}"
