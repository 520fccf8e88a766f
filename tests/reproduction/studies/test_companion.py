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
from reproduction.studies.companion import corpus, heavy, measures, models, needles, tasks, train
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
        "needles": replace(short, length=128),
        "pairs": partial(corpus.toy, pairs=True),
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


@pytest.mark.parametrize("kind", needles.KINDS)
def test_needles_stand_where_they_are_asked_for(kind, seed):
    book = np.full(2049, 46, np.uint8)
    stack = needles.haystack(kind, book, 0.5, np.random.default_rng(seed))
    assert len(stack.text) == 2049
    whole = stack.text.tobytes()
    for at in stack.asked:
        answer = whole[at : at + needles.LETTERS]
        planted = whole.index(answer)
        assert planted in stack.planted
        assert planted < min(stack.asked)
        assert whole[planted - 30 : planted] == whole[at - 30 : at]  # the same words before it
    assert len(stack.asked) == {"single": 1, "multi-key": 8, "multi-value": 4}[kind]


@pytest.mark.parametrize("length", [128, 2048])
def test_sequences_to_learn_from_hold_answers_that_can_be_known_and_hide_the_others(text, length):
    schedule = replace(TOY_TRAIN, length=length, batch=6)
    made = [needles.PlantedBatches(text.train, 3, schedule, "cpu").at(5) for _ in range(2)]
    assert all(torch.equal(*pair) for pair in zip(*made, strict=True))  # by seed and step alone
    tokens, targets = made[0]
    assert tokens.shape == targets.shape == (6, length)
    for row, target in zip(tokens, targets, strict=True):
        whole, hidden = bytes(row.tolist()), target == -100
        assert torch.equal(torch.where(hidden[:-1], row[1:], target[:-1]), row[1:])
        ends = [at for at in range(length) if whole[at : at + 5] == b" is: "]
        shown = [bool(hidden[at + 4 : at + 10].all()) for at in ends]
        assert sum(shown) * 2 == len(shown)
        assert int(hidden.sum()) == needles.LETTERS * sum(shown)
        for at, first in zip(ends, shown, strict=True):
            assert first == (whole[at + 5 : at + 11] not in whole[: at + 5])
    drawn = needles.planted(text.train[:2048], np.random.default_rng(0)).text.tobytes()
    assert not any(name.encode() in drawn for name in needles.NAMES)


def test_ranks_share_what_is_planted(text):
    batches = needles.PlantedBatches(text.train, 3, TOY_TRAIN, "cpu")
    whole = batches.at(0)[0]
    assert torch.equal(
        torch.stack([batches.at(0, r, 2)[0] for r in (0, 1)], 1).flatten(0, 1), whole
    )


def test_an_oracle_finds_every_needle_and_an_untrained_model_none(text):
    model = models.build("mamba2", models.TOY)
    rows = [
        row for kind in needles.KINDS for row in needles.found(model, text.books, kind, 1024, 2)
    ]
    assert {row["task"] for row in rows} == set(needles.KINDS)
    assert needles.mean_found(rows) == 0

    def oracle(tokens, at):  # knows each next byte
        return torch.nn.functional.one_hot(known[:, 1:].gather(1, at), 256).float()

    stacks = [
        needles.haystack("multi-key", book, 0.0, np.random.default_rng(i))
        for i, book in enumerate(corpus.spread(text.books, 1024, 2))
    ]
    known = torch.from_numpy(np.stack([one.text for one in stacks])).long()
    model.forward = oracle
    assert all(hit and part == 1 for _, hit, part in needles.answers(model, stacks, 1))


def plain_heavy_hitters(q, k, v, budget, recent, votes):
    """One head (L, D), token by token: each enters, is read, and one too many leaves."""
    kept, scores, rows = [], {}, []
    for t in range(len(q)):
        kept.append(t)
        scores = dict.fromkeys(kept, 0.0) if votes else {**scores, t: 0.0}
        share = (k[kept] @ q[t]).softmax(0)
        rows.append(share @ v[kept])
        for token, part in zip(kept, share.tolist(), strict=True):
            scores[token] += part
        if len(kept) == budget:
            kept.remove(min(kept[: len(kept) - recent], key=lambda token: scores[token]))
    return torch.stack(rows)


@pytest.mark.parametrize("votes", [False, True])
def test_heavy_hitters_are_those_of_a_token_by_token_search(votes, seed):
    torch.manual_seed(seed)
    q, k, v = torch.randn(3, 2, 3, 60, 8, dtype=torch.float64)
    mixer = heavy.HeavyHitters(24, models.Heads(3, 8), budget=12, block=1, votes=votes)
    found = mixer.reads(3 * q, k, v)
    for b in range(2):
        for h in range(3):
            want = plain_heavy_hitters(3 * q[b, h], k[b, h], v[b, h], 12, mixer.recent, votes)
            torch.testing.assert_close(found[b, h], want)


def test_heavy_hitters_see_no_more_than_their_budget_and_nothing_of_the_future(seed):
    torch.manual_seed(seed)
    mixer = heavy.HeavyHitters(24, models.Heads(3, 8), budget=40, block=8)
    q, k = torch.randn(2, 1, 3, 200, 8)
    v = torch.eye(200).expand(1, 3, 200, 200)  # a read says which tokens it saw
    seen = mixer.reads(q, k, v) > 0
    later = mixer.reads(q[:, :, :150], k[:, :, :150], v[:, :, :150]) > 0
    assert seen.sum(-1).max() == 40
    assert not seen[0, 0].triu(1).any()
    assert torch.equal(seen[:, :, :150], later)
    assert seen[:, :, 199, 192:].all()
    with pytest.raises(ValueError, match="whole texts"):
        mixer(torch.zeros(1, 4, 24), mixer.start(1))


def test_a_budget_for_every_token_reads_as_full_attention(text):
    torch.manual_seed(0)
    model = models.build("full", models.TOY)
    want = measures.bits(model, text)
    with models.swapped(model, heavy.heavy(4 * 128)):
        assert measures.bits(model, text) == pytest.approx(want, abs=1e-4)
        assert measures.kept(model, 128) == pytest.approx(measures.kept_bytes(1, 1, 16))
    with models.swapped(model, heavy.heavy(32)):
        assert measures.bits(model, text)["all"] != pytest.approx(want["all"], abs=1e-5)


def test_pairs_stand_for_all_bytes_and_their_bits_are_counted_by_the_byte(text, tmp_path):
    pairs = corpus.toy(pairs=True)
    assert pairs.vocabulary == corpus.TOY_VOCABULARY > 256
    for mine, plain in ((pairs.train, text.train), (pairs.books, text.books)):
        assert pairs.lengths[mine].sum() == len(plain)
        assert len(mine) < 0.8 * len(plain)
    model = models.build("full", replace(models.TOY, vocabulary=pairs.vocabulary))
    each = measures.losses(model, pairs.segments["held out"])
    n_bytes = pairs.lengths[pairs.segments["held out"][:, 1:]].sum()
    assert measures.bits(model, pairs)["all"] == pytest.approx(each.sum() / n_bytes)
    pairs.save(tmp_path / "pairs.npz")
    back = corpus.Corpus.load(tmp_path / "pairs.npz")
    assert np.array_equal(back.train, pairs.train)
    assert np.array_equal(back.lengths, pairs.lengths)


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
    names = ["mamba2", "full", "window", "delta", "reads", "needles", "growth", "rate+window"]
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
            assert f" {task}/{seed} --texts " in one["command"]
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


def test_every_table_shows_what_its_task_has_left(text, tmp_path):
    setting = toy_setting(text, tmp_path)
    for task in (
        *("mamba2", "full", "controls", "needles", "mamba2-bpe", "full-bpe", "controls-bpe"),
        "rate+full",
    ):
        tasks.run(setting, task, 0)
    rows = {(row.table, row.name): row for row in study.rows_of(study.read(tmp_path))}
    for table in ("controls", "pair reads"):
        for name in ("full", "cache_20", "window_10", "h2o_20", "block_votes_10"):
            assert {"bytes", "held", "bits per byte"} <= rows[table, name].measures.keys()
    assert rows["pairs", "full-bpe"].measures["bits per byte"].mean > 0
    assert rows["rates", "rate_full"].measures.keys() == {"0.001", "0.002", "0.004"}
    for read in ("full", "cache_20", "cache_10", "window_20", "h2o_20", "mamba2"):
        assert rows["needles", f"multi_key_{read}"].measures.keys() == {"1k"}
        assert len(rows["depths", f"1k_{read}"].measures) == len(needles.DEPTHS)


def test_small_models_are_measured_on_texts_of_the_length_they_learn_from(text, tmp_path):
    setting = tasks.small_setting(text, tmp_path)
    whole = text.segments["held out"].shape[1] - 1
    assert setting.tokens == min(whole, setting.train.length)
    for name, rows in setting.corpus.segments.items():
        assert len(rows) <= 32
        for mask in setting.corpus.slices[name].values():
            assert mask.shape == (len(rows), rows.shape[1] - 1)


def test_small_models_have_found_needles_under_every_read():
    rows = {row.name: row for row in study.small_rows() if row.table == "small depths"}
    for read in ("full", "cache_20", "cache_20_trained", "h2o_20", "window_20", "mamba2"):
        assert len(rows[f"1k_{read}"].measures) == len(needles.DEPTHS)


def test_what_is_collected_is_added_to_the_file(tmp_path):
    for task, number in (("a", 1), ("b", 2), ("a", 3)):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "x.json").write_text(json.dumps({"task": task, "seed": 0, "number": number}))
        study.collect(folder, tmp_path / "all.json")
    found = study.read(tmp_path / "all.json")
    assert {name: one[0]["number"] for name, one in found.items()} == {"a": 3, "b": 2}


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
