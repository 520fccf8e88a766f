from distinctkv.studies import device as module


def test_without_torch_there_is_no_device(monkeypatch):
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    assert module.device() == "absent"
