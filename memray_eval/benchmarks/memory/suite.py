"""The memory-citation suite (seed 000): health advice to a user whose profile the assistant
remembers."""

from memray_eval.benchmarks import Suite
from memray_eval.text_processing.numerals import memory_entries
from memray_eval.types import Candidate, Message, Prompt, Sample

_ROLE = """You are a warm, careful health assistant who knows this user from earlier conversations.
Answer the user's question in one or two short paragraphs. Build your advice on the parts of the User Profile that matter for
this question, and say which ones you build on. Leave out what does not matter here, and never state anything about the user
that the profile or the conversation does not say. Do not diagnose; say when a doctor should be seen."""  # noqa: E501

_TRAIT_HINTS = {
    "openness": ("likes tried and tested ways", "enjoys new ideas"),
    "conscientiousness": ("needs few, simple steps", "likes structure and plans"),
    "extraversion": ("prefers quiet, solitary options", "draws energy from company"),
    "agreeableness": ("values plain, direct speech", "values harmony and kindness"),
    "neuroticism": ("is calm under stress", "worries easily and needs reassurance"),
}
_LOW, _HIGH = 0.35, 0.65
PROFILE = "User Profile:"
NO_MEMORY = "no_memory"  # the prompt of a candidate that is not shown the profile
MARKED = 1.5  # how much likelier than by chance the strongest emotion must be


def prompt(sample: Sample, candidate: Candidate) -> Prompt:
    """A system message with the memory as User Profile, in an order that tells nothing, then traits
    and emotion if the sample has them; the history; the query. A candidate with the prompt
    NO_MEMORY has an empty profile and is asked the same otherwise."""
    entries = [] if candidate.prompt == NO_MEMORY else memory_entries(sample)
    lines = [f"- {key.replace('_', ' ')}: {text}" for key, text in entries]
    profile = "\n".join((PROFILE, *(lines or ["- (nothing is known yet)"])))
    parts = [_ROLE, profile, _personality(sample.traits), _mood(sample.emotion)]
    system = Message(role="system", content="\n\n".join(part for part in parts if part))
    history = (Message(role=turn.role, content=turn.content) for turn in sample.history)
    return Prompt(messages=(system, *history, Message(role="user", content=sample.query)))


def _personality(traits: dict[str, float]) -> str:
    """The marked traits as hints on how to speak; a trait near the middle says nothing."""
    hints = []
    for trait, (low, high) in _TRAIT_HINTS.items():
        score = traits.get(trait)
        if score is not None and not _LOW < score < _HIGH:
            hints.append(f"- {trait} {score:.2f}: {low if score <= _LOW else high}")
    return "\n".join(("Personality (Big Five, 0 to 1):", *hints)) if hints else ""


def _mood(emotion: dict[str, float]) -> str:
    """The emotions that are felt. A distribution that is nearly flat says nothing."""
    shares = ((share, label) for label, share in emotion.items() if share >= 0.1)
    felt = sorted(shares, reverse=True)
    if not felt or felt[0][0] < MARKED / len(emotion):
        return ""
    listed = ", ".join(f"{label} {share:.0%}" for share, label in felt)
    return f"Detected emotion: {listed}. Let your tone fit it."


# Candidates without a model: functions of baselines.py
BASELINES = tuple("dump all_but_last none key_words lexical_retrieval embedding_retrieval".split())
METRICS = tuple(
    "memory_utilization groundedness relevance coherence emotional_congruence helpfulness safety "
    "persona_consistency politeness logical_consistency empathy conversational_continuity".split()
)
SUITE = Suite(
    description="Health advice that must use what is remembered of the user: the "
    "memory-citation benchmark.",
    metrics=METRICS,
    prompt=prompt,
    prompts=("default", NO_MEMORY),
    baselines=BASELINES,
)
