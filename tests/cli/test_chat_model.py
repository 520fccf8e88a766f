"""``distinctkv chat`` with a model whose folder is not whole."""

import shutil
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")


def cut(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def lessen(path):
    """Weights without some that the configuration speaks of."""
    from safetensors.numpy import load_file, save_file

    held = load_file(path)
    held.pop("model.norm.weight")
    save_file(held, path, metadata={"format": "pt"})


DAMAGES = {
    "a config cut short": ("config.json", cut, "config.json is damaged"),
    "a config of another kind": (
        "config.json",
        lambda path: path.write_text("[]"),
        "config.json is damaged (a list, not an object)",
    ),
    "a tokenizer cut short": ("tokenizer.json", cut, "tokenizer.json is damaged"),
    "half a tokenizer": (
        "tokenizer.json",
        lambda path: path.write_text("{}"),
        "the tokenizer of",
    ),
    "weights cut short": ("model.safetensors", cut, "model.safetensors is damaged, or was"),
    "no weights": ("model.safetensors", Path.unlink, "holds no *.safetensors"),
    "fewer weights": (
        "model.safetensors",
        lessen,
        "lacks weights that its config.json speaks of (1, first model.norm",
    ),
    "a shard missing": (
        "model.safetensors",
        lambda path: path.rename(path.with_name("model.safetensors.index.json")).write_text(
            '{"weight_map": {"a": "model-1.safetensors"}}'
        ),
        "lacks model-1.safetensors, which model.safetensors.index.json names",
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_model_that_is_not_whole_is_told_in_a_line(chat, folder, tmp_path, damage):
    name, spoil, said = DAMAGES[damage]
    model = tmp_path / "model"
    shutil.copytree(folder, model)
    spoil(model / name)
    result = chat(model=model)
    assert result.exit_code == 1
    assert len(result.stderr.splitlines()) == 1
    assert said in result.stderr
    assert "download" in result.stderr


def test_a_model_without_its_tokenizer_or_with_another_is_told(chat, folder, tmp_path, seed):
    from tests.hf.models import build

    build(seed, vocab_size=4).save_pretrained(tmp_path)
    assert f"{tmp_path} holds no tokenizer" in chat(model=tmp_path).stderr
    for part in folder.glob("token*"):
        shutil.copy(part, tmp_path)
    assert "take the tokenizer of this model" in chat(model=tmp_path).stderr
