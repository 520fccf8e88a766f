"""What the commands share: standard output, the lock of a state, the progress bar."""

import errno

import click
import pytest

from distinctkv.cli import io
from tests.cli.logs import start


def test_an_error_inside_is_not_an_error_of_the_output():
    with pytest.raises(FileNotFoundError), io.standard_output():
        raise FileNotFoundError(errno.ENOENT, "no such file", "a.log")


BODY = """
from distinctkv.cli import io
with io.standard_output():
    for _ in range(10_000):
        print("größe " * 100)
    {body}
"""


@pytest.mark.parametrize("body", ["pass", "raise OSError(2, 'no such file')"])
def test_a_full_disk_is_reported(body):
    with open("/dev/full", "wb") as full:
        process = start(before=BODY.format(body=body), stdout=full)
        _, told = process.communicate(timeout=60)
    assert b"cannot write to standard output: No space left" in told


def test_output_after_the_command_goes_to_the_same_place(capfd):
    with io.standard_output():
        click.echo("größe")
    print("after")
    assert capfd.readouterr().out == "größe\nafter\n"


def test_one_run_at_a_time_has_the_lock(tmp_path):
    state, link = tmp_path / "app.state", tmp_path / "link"
    link.symlink_to(state)
    held, second = io.lock_state(state), io.lock_state(link)
    with held, pytest.raises(click.ClickException, match="in use"), second:
        pass
    with io.lock_state(link):
        pass


def test_what_is_no_regular_file_is_refused(tmp_path):
    with pytest.raises(click.BadParameter, match="regular"), io.lock_state(tmp_path):
        pass
    missing = tmp_path / "none" / "app.state"
    with pytest.raises(click.BadParameter, match="folder"), io.lock_state(missing):
        pass


def test_there_is_no_bar_without_a_terminal(capsys):
    with io.progress("parse", 10) as update:
        update(5, text="half")
    assert capsys.readouterr().err == ""
