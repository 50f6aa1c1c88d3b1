"""``help(rf.fit)`` lists every setting of every method with its default and help."""

import pydoc

import rankfold as rf
from rankfold.config import declarations, list_settings, listed
from rankfold.tasks.options import FitOptions, TuneOptions


def test_help_of_fit_has_every_setting() -> None:
    shown = pydoc.plain(pydoc.render_doc(rf.fit))
    sections = dict(part.split(": ", 1) for part in (rf.fit.__doc__ or "").split("\n\n")[5:])
    assert list(sections) == list(rf.METHODS)
    for name, method in rf.METHODS.items():
        lines = sections[name].split("\n")
        assert lines[0] == method.summary
        declared = declarations(method.config)
        assert len(lines) == 1 + len(declared)
        for line, (key, default, _) in zip(lines[1:], list_settings(method.config), strict=True):
            assert line == f"    {key}={default!r}: {declared[key].help}"
            assert line.strip() in shown
    for options, function in ((FitOptions, rf.fit), (TuneOptions, rf.tune)):
        for line in listed("", options).split("\n"):
            assert line in (function.__doc__ or "")


def test_a_setting_is_listed_with_its_default_and_help() -> None:
    assert "    width=512: largest rank, the length of the vectors\n" in (rf.fit.__doc__ or "")
    assert "    seed=0: seed of the random numbers\n" in (rf.fit.__doc__ or "")
