"""The project's prose rules, as checks of proselint.

A rule finds words that make a reader go back, for example "who" for a component, "where" for a condition, verbs of
speech for what a component reports, chains of "of", and long sentences. ``tests/packaging/test_prose.py`` has an
example for each rule.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from proselint.registry.checks import Check, CheckResult

WORDS_MAX = 36
"""Largest number of words in a sentence. A longer sentence usually contains more than one idea."""

_PERSONS = (
    r"anyone|authors?|everyone|one|operators?|people|persons?|readers?|reviewers?|someone|those|users?|visitors?|you"
)


def _words(pattern: str) -> Callable[[str, Check], Iterator[CheckResult]]:
    """Return a check that reports each match of a regular expression, unless its group ``fine`` matched some text."""
    compiled = re.compile(pattern, re.MULTILINE)

    def check(text: str, rule: Check) -> Iterator[CheckResult]:
        for match in compiled.finditer(text):
            if not match.groupdict().get("fine"):
                yield CheckResult(rule.path, rule.message.format(" ".join(match[0].split())), match.span(), None)

    return check


def _long_sentences(text: str, rule: Check) -> Iterator[CheckResult]:
    begin = 0
    ends = [match.end() for match in re.finditer(r"[.!?][)\"'*]*(?=\s+[A-Z`*\[(\"]|\s*$)|\n\n", text)]
    for end in (*ends, len(text)):
        sentence = text[begin:end]
        count = len(re.findall(r"[A-Za-z][\w'-]*", sentence))
        if count > WORDS_MAX:
            start = begin + len(sentence) - len(sentence.lstrip())
            yield CheckResult(rule.path, rule.message.format(count), (start, end), None)
        begin = end


def _rule(name: str, pattern: str, message: str) -> Check:
    return Check(_words(pattern), path=f"barrierscope.{name}", message=message)


RULES = (
    Check(_long_sentences, path="barrierscope.long", message=f"{{}} words in a sentence; at most {WORDS_MAX}"),
    _rule("told", r"\b(?:told|tells)\b", "'{}': a component reports, shows or states"),
    _rule("will-not-do", r"\b(?:[Ww]ill|[Ww]ould) (?:not )?do\b(?=[.,;:)]|$)", "'{}': say what is valid"),
    _rule("unbelievable", r"\b[Uu]nbeliev\w+", "'{}': state the fact, and what may explain it"),
    _rule("beside", r"\b[Bb]esides?\b", "'{}': next to, with, in addition to"),
    _rule(
        "who",
        rf"(?P<fine>\b(?i:{_PERSONS}),?\s+)?\b(?:[Ww]ho(?:ever|m)?)\b",
        "'{}' is for persons; a component: that, which",
    ),
    _rule("where-is-if", r"(?:^|(?<=[.;:] ))Where [^?:\n]*?,", "'{}' states a condition: if"),
    _rule(
        "where-is-if",
        r"\b[Ww]herever\b|\bwhere\s+(?:there\s+(?:is|are|was|were)|it\s+(?:is|was)\s+(?:not|empty|set|known|given|needed)|"
        r"(?:it|they|that)\s+(?:does|do|cannot|has no|have no)|nothing|none|no|not|known|possible|needed|present)\b",
        "'{}' states a condition: if",
    ),
    _rule(
        "of-chain",
        r"\bof\b(?:[ \n]+[\w'`-]+){1,3}[ \n]+of\b(?:[ \n]+[\w'`-]+){1,3}[ \n]+of\b",
        "'{}': a chain of 'of'",
    ),
    _rule(
        "inversion",
        r"(?:^|(?<=[.;:] ))(?!Based|Need|Speed|Seed|Indeed)[A-Z]\w+(?:ed|wn) (?:is|are|was|were)\b",
        "'{}': the subject comes first",
    ),
    _rule(
        "inversion",
        r"(?:;|, and) (?:assumed|compared|judged|measured|taken) (?:is|are|was|were)\b",
        "'{}': the subject comes first",
    ),
    _rule("for-is-because", r", for (?:it|its|they|their|there|that|these|he|she)\b", "'{}': because, since"),
    _rule(
        "riddle",
        r"\b(?:all the same|for want of|hangs? on|of late|all else|in the way|anew|worth the name|none the less|"
        r"nobody|Nobody|somebody|Somebody|one wants|goes on|go on|went on|for good|as it were|so many|and so not|"
        r"that (?:is|are) none)\b",
        "'{}': say it plainly",
    ),
)
"""All rules of the project. A finding is reported with the path of its rule, such as ``barrierscope.long``."""
