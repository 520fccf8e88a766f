import pytest

from reproduction import studies
from reproduction.data import catalogue
from reproduction.studies.study import FULL, QUICK, Scale, absent, sources
from tests.reproduction.studies.toys import nowhere, write_log


@pytest.mark.parametrize("part", [0.0, -0.5, 1.5])
def test_a_scale_is_a_part_of_the_full_size(part):
    with pytest.raises(ValueError, match="a part in"):
        Scale("odd", part)


def test_the_smallest_scale_still_runs_something():
    assert Scale("tiny", 1e-9).of(300) == 1


@pytest.mark.parametrize("name", studies.NAMES)
def test_settings_tell_the_scales_apart(name):
    study = studies.load(name)
    assert study.settings(QUICK) != study.settings(FULL)


def test_an_unknown_study_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match="no study 'recal'; there are recall"):
        studies.load("recal")


def test_all_streams_are_absent_where_there_are_none(tmp_path):
    with nowhere(tmp_path):
        assert absent(*catalogue.NAMES) == catalogue.NAMES


def test_a_system_of_loghub_is_here_by_itself(tmp_path):
    write_log(tmp_path, "BGL", n_lines=8)
    with nowhere(tmp_path):
        assert absent("loghub", "loghub/BGL", "loghub/HDFS") == ("loghub/HDFS",)


def test_a_setting_says_from_which_file_a_stream_is_read(tmp_path):
    write_log(tmp_path, "BGL", n_lines=8)
    with nowhere(tmp_path):
        said = sources("loghub/BGL", "mimic")
    assert said == (
        "loghub/BGL: loghub_2k/BGL/BGL_2k.log, loghub_2k/BGL/BGL_2k.log_structured.csv; "
        "mimic: absent"
    )


def test_an_unknown_stream_is_refused():
    with pytest.raises(ValueError, match="no stream 'mimics'"):
        absent("mimics")
