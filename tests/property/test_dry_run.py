"""The output of a dry run, with anything in it: no exception, and what is read back is what was written."""

import shlex

from hypothesis import given
from hypothesis import strategies as st
from ptxmotion.compiler.dry_run import assemblies_of, steps_of

#: Words as nvcc prints them: without line breaks, and no redirections.
WORDS = st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1).filter(lambda word: ">" not in word)


@given(st.lists(st.one_of(st.text(), st.sampled_from(["#$ ptxas -o", "#$ ptxas", '#$ "cicc" -o', "#$ cicc -o a"]))))
def test_any_text_is_read(lines: list[str]) -> None:
    assemblies_of(steps_of("\n".join(lines)))


@given(st.lists(st.lists(WORDS, min_size=2), max_size=4))
def test_quoted_words_are_read_back(commands: list[list[str]]) -> None:
    commands = [["program", *words] for words in commands]
    assert steps_of("".join(f"#$ {shlex.join(words)}\n" for words in commands)) == commands
