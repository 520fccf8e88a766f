"""The companion study at toy size: its corpus, controls, training and measures."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from distinctkv.nn.baselines import KVMAttention
from distinctkv.nn.functional import SlotState, allocate, unit
from reproduction.studies import companion as study
from reproduction.studies.companion import corpus, measures, models, tasks, train
from reproduction.studies.companion.__main__ import main
from reproduction.studies.companion.tasks import TOY_TRAIN


@pytest.fixture(scope="module")
def text():
    return corpus.toy()


def toy_setting(text, folder, **changes):
    short = replace(TOY_TRAIN, steps=6, length=64, every=2, save_every=3)
    given = {
        "size": models.TOY,
        "train": short,
        "tune": short,
        "gate": short,
        "lengths": (1024,),
        "texts": 1,
    }
    return tasks.Setting(text, folder, say=lambda line: None, **{**given, **changes})


@given(st.lists(st.integers(0, 3), min_size=20, max_size=60), st.sampled_from([3, 8, 9, 16]))
def test_gaps_are_those_of_a_plain_search(letters, n):
    row = np.array([letters], np.uint8)
    grams = [bytes(letters[i : i + n]) for i in range(len(letters) - n + 1)]
    want = [
        next((i - j for j in range(i - 1, -1, -1) if grams[j] == g), 0) for i, g in enumerate(grams)
    ]
    assert corpus.gaps(corpus.n_grams(row, n))[0].tolist() == want


def test_rare_n_grams_are_not_in_the_training_text(text):
    segments, train_text = text.segments["held out"], text.train.tobytes()
    for n in corpus.N_GRAMS:
        hit, rare = (text.slices["held out"][name] for name in (f"{n}-gram", f"rare {n}-gram"))
        assert not (rare & ~hit).any()
        for row, place in list(zip(*np.nonzero(hit), strict=True))[::200]:
            gram = segments[row, place + 2 - n : place + 2].tobytes()
            before = segments[row, : place + 1].tobytes()
            assert gram in before
            assert rare[row, place] == (gram not in train_text)


def test_a_corpus_comes_back_as_saved(text, tmp_path):
    text.save(tmp_path / "corpus.npz")
    back = corpus.Corpus.load(tmp_path / "corpus.npz")
    assert np.array_equal(back.train, text.train)
    for name, masks in text.slices.items():
        assert np.array_equal(back.segments[name], text.segments[name])
        for part, mask in masks.items():
            assert np.array_equal(back.slices[name][part], mask)


def test_controls_open_as_many_slots_as_the_rule():
    keys = unit(torch.randn(2, 600, 3, 4))
    found = allocate(keys, 0.1)
    random = models.by_similarity(keys, models.as_many_at_random(found.lead))
    assert torch.equal(random.n_slots, found.n_slots)
    assert torch.equal(random.lead[:, :256].sum(1), found.lead[:, :256].sum(1))
    for t in range(0, 600, 97):  # a token joins the most similar leader so far
        leaders = random.lead[0, : t + 1, 0].nonzero()[:, 0]
        best = leaders[(keys[0, leaders, 0] @ keys[0, t, 0]).argmax()]
        assert random.opener[0, 0, random.assign[0, t, 0]] == best
    stride = models.by_stride(keys, found.lead)
    assert stride.n_slots.float().mean() == round(float(found.n_slots.float().mean()))
    sizes = stride.assign[0, :, 0].bincount()
    assert sizes.max() - sizes.min() <= 1


def test_a_cache_that_merges_nothing_reads_as_full_attention(text):
    torch.manual_seed(0)
    model = models.build("full", models.TOY)
    want = measures.bits(model, text)
    with models.swapped(model, models.cache(0.0)):
        near = measures.bits(model, text)
        assert [len(layer) for layer in measures.slot_counts(model)] == [4, 4]
    assert near == pytest.approx(want, abs=1e-4)
    assert measures.bits(model, text) == want  # put back


@pytest.mark.parametrize("task", measures.TASKS)
def test_needles_stand_where_they_are_asked_for(task):
    book = np.full(3000, 46, np.uint8)
    stack = measures.haystack(task, book, 2048, 0.5, seed=3)
    assert len(stack.text) == 2049
    whole = stack.text.tobytes()
    for at in stack.asked:
        answer = whole[at : at + measures.LETTERS]
        planted = whole.index(answer)
        assert planted < min(stack.asked)
        assert whole[planted - 30 : planted] == whole[at - 30 : at]  # the same words before it
    assert len(stack.asked) == {"single": 1, "multi-key": 8, "multi-value": 4}[task]


def test_an_oracle_finds_every_needle_and_an_untrained_model_none(text):
    model = models.build("mamba2", models.TOY)
    rows = measures.needles(model, text.books, (1024,), 2)
    assert {row["task"] for row in rows} == set(measures.TASKS)
    assert all(row["found"] == 0 for row in rows)

    def oracle(tokens, at):  # knows each next byte
        return torch.nn.functional.one_hot(known[:, 1:].gather(1, at), 256).float()

    stacks = [
        measures.haystack("multi-key", book, 1024, 0.0, i)
        for i, book in enumerate(corpus.spread(text.books, 1024, 2))
    ]
    known = torch.from_numpy(np.stack([one.text for one in stacks])).long()
    model.forward = oracle
    assert all(
        hit and part == 1 for _, hit, part in measures._answers(model, stacks, 1)
    )  # the part that is judged


def test_a_stopped_run_goes_on_as_if_it_had_not_stopped(text, tmp_path):
    schedule = replace(TOY_TRAIN, steps=6, length=64, every=1, save_every=100)
    weights = []
    for stops_after in (100, 3):
        torch.manual_seed(0)
        model, path = models.build("full", models.TOY), tmp_path / "resume"
        stop = partial(next, iter([False] * stops_after), True)
        lines = train.train(model, text.train, schedule, 0, path=path, stop=stop)
        if len(lines) < 6:
            model = models.build("full", models.TOY)  # another start
            lines = train.train(model, text.train, schedule, 0, path=path)
        assert [line.step for line in lines] == [1, 2, 3, 4, 5, 6]
        weights.append(model.state_dict())
    assert all(torch.equal(a, b) for a, b in zip(*(w.values() for w in weights), strict=True))


@pytest.mark.slow
def test_two_processes_train_what_one_trains(tmp_path):
    command = ["-m", "reproduction.studies.companion", "run", "toy"]
    env = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    for words, name in (([sys.executable], "one"), (launch, "two")):
        subprocess.run([*words, *command, str(tmp_path / name), "mamba2/0"], check=True, env=env)
    one, two = (
        json.loads((tmp_path / name / "mamba2-0.json").read_text()) for name in ("one", "two")
    )
    assert two["bits"]["all"] == pytest.approx(one["bits"]["all"], abs=0.02)


def test_every_task_leaves_its_file(text, tmp_path):
    setting = toy_setting(text, tmp_path)
    names = ["mamba2", "full", "window", "delta", "reads", "needles", "growth"]
    names += [f"tune+{read}" for read in ("full", "cache", "window", "both", "gate")]
    for name in names:
        tasks.run(setting, name, 0)
        made = json.loads((tmp_path / f"{name}-0.json").read_text())
        assert made["task"] == name
        assert made["torch"] == torch.__version__
    rows = {row["read"]: row for row in json.loads((tmp_path / "reads-0.json").read_text())["rows"]}
    assert rows["full"]["kept"] == 1
    for name in ("cache", "window", "both", "random", "stride", "KVM", "OVQ"):
        assert 0.1 < rows[f"{name} 20 %"]["kept"] < 0.3
    first, other = (rows[f"{name} 20 %"]["slots"][0] for name in ("random", "cache"))
    assert first == other  # of the first layer: what the next one sees is no longer the same


def test_a_task_that_lacks_its_weights_says_which_to_run(text, tmp_path):
    with pytest.raises(FileNotFoundError, match="run full/3 first"):
        tasks.run(toy_setting(text, tmp_path), "reads", 3)
    with pytest.raises(ValueError, match="no task"):
        tasks.run(toy_setting(text, tmp_path), "nonsense", 0)


def test_the_command_shows_what_it_has_run(tmp_path, capsys):
    main(["run", "toy", str(tmp_path), "mamba2/0", "--steps", "2"])
    main(["show", str(tmp_path)])
    assert "mamba2-0 all " in capsys.readouterr().out


@pytest.mark.parametrize("task", ["nonsense/0", "full", "full/first"])
def test_the_command_names_the_tasks_there_are(task, capsys):
    with pytest.raises(SystemExit):
        main(["run", "toy", "out", task])
    assert "as full/0; the tasks are mamba2" in capsys.readouterr().err


def test_the_command_says_where_the_novels_belong(tmp_path, monkeypatch, capsys):
    for name in ("DISTINCTKV_DATA", "DISTINCTKV_CACHE"):
        monkeypatch.setenv(name, str(tmp_path))
    with pytest.raises(SystemExit):
        main(["prepare", str(tmp_path / "corpus.npz")])
    assert "name its folder in DISTINCTKV_DATA" in capsys.readouterr().err


def test_shipped_results_say_what_made_them_and_are_read_from_one_file(tmp_path):
    found = study.read(study.SHIPPED)
    for task, runs in found.items():
        for seed, one in runs.items():
            assert one["command"].endswith(f"{task}/{seed} --texts 3")
            assert {"date", "torch", "python", "device", "distinctkv"} <= one.keys()
    assert len(found["reads"]) == len(found["mamba2"]) == len(found["full"]) == 3
    (tmp_path / "one.json").write_text(json.dumps(found["full"][1]))
    study.collect(tmp_path, tmp_path / "all")
    assert study.read(tmp_path / "all") == {"full": {1: found["full"][1]}}


def test_the_lead_that_is_kept_is_counted_from_full_attention_down_to_mamba2():
    def bits(number):
        return dict.fromkeys(study.PARTS.values(), number)

    rows = [
        {"read": read, "kept": part, "bits": bits(number), "slots": []}
        for read, part, number in (
            ("full", 1.0, 1.0),
            ("cache 20 %", 0.2, 1.5),
            ("window", 0.2, 3.5),
        )
    ]
    found = {"reads": {0: {"rows": rows}}, "mamba2": {0: {"bits": bits(3.0)}}}
    kept = {row.name: row.measures["overall"].mean for row in study.read_rows(found)}
    assert kept == {"full": 1.0, "cache_20": 0.75, "window": -0.25}


def test_held_bytes_are_those_of_the_buffers_and_counted_bytes_those_of_16_bits():
    head, (fullest, other) = models.BASE.head, (1000, 200)
    keys = torch.empty(1, 1, 2, head, dtype=torch.bfloat16)
    state = SlotState.empty(keys, keys, fullest)
    full = 2 * 2 * 2 * head * corpus.LENGTH  # keys and values of two heads
    counted = measures.kept_bytes((fullest + other) / 2, corpus.LENGTH, head)
    found = study.held({"kept": counted + 0.1, "slots": [[fullest, other]]})  # and a window
    assert found["slots"] == pytest.approx(600 / corpus.LENGTH)
    assert found["held"] == pytest.approx(0.1 + state.nbytes / full, abs=1e-4)
    assert study.held({"kept": 0.2, "slots": []}) == {"held": 0.2}


def test_kvm_and_ovq_hold_sums_of_32_bits():
    heads = models.TOY.attention()
    mixer = KVMAttention(models.TOY.width, heads, chunk=8)
    mixer.fit(8, 64)
    state = mixer.start(1)
    mixer.mix(torch.randn(1, 64, models.TOY.width), state)
    slots = sum(part.nbytes for part in (state.keys, state.values, state.counts))
    counted = measures.kept_bytes(8, 1, heads.size) * 2 * 2 * heads.size * heads.count
    assert slots == pytest.approx(counted * measures.scheduled_times(heads.size))
