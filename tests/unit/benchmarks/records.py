"""A good record of each benchmark as it is published, and the file that it would stand in."""

import json
from typing import Any

from memray_eval.benchmarks import get_suite
from memray_eval.types import Candidate, Sample

PLAIN = Candidate(name="a", model="m")
GRAPH = (
    "You get a graph.\nOperation:\nan example\n\nThe graph:\na1 -> b2\nb2 -> c3\n\n\n"
    "Operation:\nFind the parents of node c3.\n\nReply.\nFinal Answer: []"
)
MESSAGES = [
    {"role": "user", "content": "Write a poem about tapirs"},
    {"role": "assistant", "content": "First {poem}."},
    {"role": "user", "content": "Write a poem about tapirs"},
    {"role": "assistant", "content": "Second poem."},
    {"role": "user", "content": "Prepend aB3 to the 2nd (1 indexed) poem about tapirs."},
]
# A suite, and what tells its kinds of record apart -> the file's path, and the record in it
RECORDS: dict[str, tuple[str, dict[str, Any]]] = {
    "babilong": (
        "babilong/data/qa1/32k.json",
        {
            "input": "It rained. Mary moved to the kitchen. It {rained} on.",
            "question": "Where is Mary? ",
            "target": "kitchen",
        },
    ),
    "graphwalks": (
        "graphwalks_128k_and_shorter.parquet",
        {
            "prompt": GRAPH,
            "answer_nodes": ["b2"],
            "prompt_chars": len(GRAPH),
            "problem_type": "parents",
            "date_added": "02-27-2026",
        },
    ),
    "healthbench": (
        "2025-05-07-06-14-12_oss_eval.jsonl",
        {
            "prompt_id": "p-1",
            "prompt": [
                {"role": "user", "content": "I have a rash."},
                {"role": "assistant", "content": "Since when?"},
                {"role": "user", "content": "Since {today}."},
            ],
            "rubrics": [
                {"criterion": "Asks about fever.", "points": 7, "tags": ["axis:context"]},
                {"criterion": "Names a cause as certain.", "points": -6, "tags": []},
            ],
            "example_tags": ["physician_agreed_category:x", "theme:hedging"],
            "ideal_completions_data": None,
            "canary": "healthbench:0",
        },
    ),
    "healthbench professional": (
        "healthbench_professional_eval.jsonl",
        {
            "id": "q-1",
            "conversation": {"messages": [{"role": "user", "content": "Dose for a child?"}]},
            "rubric_items": [{"criterion_text": "Asks for the weight.", "points": 5}],
            "use_case": "consult",
            "specialty": "paediatrics",
            "difficulty": None,
            "physician_response": "Which weight?",
            "canary_string": "x",
        },
    ),
    "helmet needles": (
        "data/ruler/niah_multivalue/validation_8192.jsonl",
        {
            "context": "One of the special magic numbers for old-fox is: 4711.",
            "query": "old-fox",
            "answer": ["4711", "0815"],
            "type_needle_v": "numbers",
            "index": 3,
        },
    ),
    "helmet pairs": (
        "data/json_kv/test_k105_dep6.jsonl",
        {
            "context": '{"k1": "v1"}',
            "question": "k1",
            "answer": "v1",
            "demos": [["a", "b"]],
            "num_kvs": 105,
            "depth": 0.2,
        },
    ),
    "helmet passages": (
        "data/kilt/nq-dev-multikilt_1000_k50_dep6.jsonl",
        {
            "id": "q7",
            "question": "Who built it?",
            "answers": ["Iver Dahl"],
            "ctxs": [{"title": "Boats", "text": "Iver Dahl built {it}."}, {"text": "It rained."}],
        },
    ),
    "infinitebench": (
        "data/longbook_qa_chn.jsonl",
        {
            "id": 0,
            "context": "Some {text}.",
            "input": "What is it?",
            "answer": ["两个", "2"],
            "options": [],
        },
    ),
    "longbench": (
        "data/hotpotqa.jsonl",
        {
            "input": "Who built it?",
            "context": "The Harkers built it.",
            "answers": ["the Harkers", "Harkers"],
            "length": 4,
            "dataset": "hotpotqa",
            "language": "en",
            "all_classes": ["a", "b"],
            "_id": "0a1b",
        },
    ),
    "longbench2": (
        "data.json",
        {
            "_id": "66ec",
            "domain": "Long-dialogue History Understanding",
            "sub_domain": "Agent history QA",
            "difficulty": "hard",
            "length": "short",
            "question": "Who won?",
            "choice_A": "Ann",
            "choice_B": "Ben $Q$",
            "choice_C": "Cy {context}",
            "choice_D": "Di",
            "answer": "B",
            "context": "  Ben won. $C_A$ ",
        },
    ),
    "mrcr": (
        "2needle.parquet",
        {
            "prompt": json.dumps(MESSAGES),
            "answer": "aB3Second poem.",
            "random_string_to_prepend": "aB3",
            "n_needles": 2,
            "desired_msg_index": 3,
            "total_messages": 5,
            "n_chars": 20_000,
            "date_added": "12-05-2025",
        },
    ),
    "needles": (
        "needles.parquet",
        {"id": "passkey-en-4k-0", "task": "passkey", "query": "Which?", "answers": ["12345"]},
    ),
    "needles of RULER": (
        "data/131072/niah_single_2/validation.jsonl",
        {"index": 3, "input": "It rained. Which number?", "outputs": ["12345"]},
    ),
    # As vendors and the benchmarks' own runs write answers
    "locomo": (
        "scored.jsonl",
        {"question_id": "locomo_0_qa1", "category": 5, "query": "Who?", "prediction": "Nobody"},
    ),
    "longmemeval": (
        "hypotheses.jsonl",
        {
            "question_id": "x_abs",
            "question_type": "multi-session",
            "question": "Q?",
            "answer": "A",
            "hypothesis": "H",
            "answer_session_ids": ["s"],
        },
    ),
    "personamem": (
        "results.csv",
        {
            "question_id": "q1",
            "question_type": "recall_user_shared_facts",
            "user_question_or_message": "Which part is mine?",
            "correct_answer": "(b)",
            "all_options": "['(a) Bass', '(b) Alto\\nof course', '(c) Tenor', '(d) None']",
            "model_response": "(b)",
        },
    ),
}


def record(name: str, **changes: Any) -> dict[str, Any]:
    """The record with changes; a field that is changed to ... is not there."""
    changed = RECORDS[name][1] | changes
    return {field: value for field, value in changed.items() if value is not ...}


def adapted(name: str, path: str = "", **changes: Any) -> dict[str, Any]:
    """The fields that the suite makes of the changed record, in the file at `path`."""
    suite = get_suite(name.split()[0])
    return dict(suite.adapt(record(name, **changes), path or RECORDS[name][0]))


def sample_of(name: str, path: str = "", **changes: Any) -> Sample:
    suite = name.split()[0]
    return Sample.model_validate({"id": "1", **adapted(name, path, **changes), "suite": suite})


def sent(sample: Sample, candidate: Candidate = PLAIN, templates: str | None = None) -> str:
    """The text of the only message."""
    (message,) = get_suite(sample.suite, templates).prompt(sample, candidate).messages
    return message.content
