import numpy as np
import pytest

from benchmarks.llm.kit import QUESTIONS, Kit
from benchmarks.llm.tasks import TASKS, continuation
from tests.benchmarks.llm.word_tokenizer import Words


@pytest.fixture(params=[300, 2000])
def kit(request, seed):
    return Kit(Words(), request.param, np.random.default_rng(seed))


def again(kit, seed):
    return Kit(kit.tokenizer, kit.length, np.random.default_rng(seed))


@pytest.mark.parametrize("name", TASKS)
def test_a_context_is_as_long_as_was_asked_for_or_a_line_shorter(name, kit):
    made = TASKS[name](kit)
    assert len(made.ids) <= kit.length
    few = name == "updates"  # as many facts as there are
    assert len(made.ids) > (0.5 if few else 0.8) * kit.length


@pytest.mark.parametrize("name", TASKS)
def test_every_answer_was_in_the_context(name, kit):
    made = TASKS[name](kit)
    text = kit.tokenizer.decode(made.ids)
    assert 1 <= len(made.questions) <= QUESTIONS
    for _, answer in made.questions:
        assert kit.tokenizer.decode(answer).strip() in text


@pytest.mark.parametrize("name", TASKS)
def test_a_seed_makes_one_context_and_another_seed_another(name, kit, seed):
    first, second, other = (TASKS[name](again(kit, one)) for one in (seed, seed, seed + 1))
    assert first == second
    assert first.ids != other.ids


def test_the_current_value_is_the_last_that_was_said(kit):
    made = TASKS["updates"](kit)
    for cue, answer in made.questions:
        said = kit.tokenizer.decode(cue).split("Answer: ")[-1].split("above: ")[-1]
        last = kit.tokenizer.decode(made.ids).rsplit(said, 1)[1]
        assert last.startswith(kit.tokenizer.decode(answer))


def test_a_tale_hardly_ever_says_a_sentence_twice(kit):
    lines = kit.tokenizer.decode(TASKS["tale"](kit).ids).splitlines()
    assert len(set(lines)) > 0.95 * len(lines)


def test_a_log_has_few_distinct_lines_beside_its_facts(seed):
    made = Kit(Words(), 6000, np.random.default_rng(seed))
    lines = made.tokenizer.decode(TASKS["logs"](made).ids).splitlines()
    assert len(set(lines)) <= 24 + QUESTIONS
    assert len(lines) > 100


def test_a_continuation_follows_its_context(seed):
    kit = Kit(Words(), 50, np.random.default_rng(seed))
    text = " ".join(f"w{i}" for i in range(200))
    made = continuation(kit, text, 20)
    ((cue, answer),) = made.questions
    assert kit.tokenizer.decode((*made.ids, *cue, *answer)).strip() in text
    assert (len(made.ids) + len(cue), len(answer)) == (50, 20)


def test_a_text_too_short_to_go_on_is_refused(seed):
    kit = Kit(Words(), 50, np.random.default_rng(seed))
    with pytest.raises(ValueError, match="70 are needed"):
        continuation(kit, "too short", 20)
