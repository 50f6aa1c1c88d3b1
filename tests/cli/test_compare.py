"""`rankfold compare`: its output, its files, its exit codes."""

import json
import shlex
from inspect import signature
from pathlib import Path

import pytest
from commands import Command

from rankfold.cli import compare
from rankfold.tasks.options import CompareOptions

OWN = {"data", "methods", "set", "dry_run", "json", "quiet"}  # not options of Python


def words(home: Path, *more: object) -> tuple[object, ...]:
    how = ("--methods", "ease,popularity", "--out", home / "out", "--metrics", "ndcg@5,coverage@5")
    return ("compare", home / "data", *how, *more)


def test_results_are_shown_and_written(rankfold: Command, home: Path) -> None:
    done = rankfold(*words(home, "--seeds", 2))
    assert (done.code, done.out) == (0, "")
    results = json.loads((home / "out/results.json").read_text())
    best, other = (method["metrics"]["ndcg@5"]["mean"] for method in results["methods"])
    shown = {line.split()[1]: line for line in done.err.splitlines() if line.startswith("│")}
    assert f"{best:.4f}*" in shown["ease"]
    assert f"{other:.4f} " in shown["popularity"]
    assert str(home / "out" / "results.csv") in done.err


def test_the_document_is_on_stdout_alone(rankfold: Command, home: Path) -> None:
    done = rankfold(*words(home, "--json"))
    assert (done.code, done.err) == (0, "")
    assert json.loads(done.out) == json.loads((home / "out/results.json").read_text())


def test_the_command_of_the_results_repeats_them(rankfold: Command, home: Path) -> None:
    names = ("--methods", "a=ease,popularity@5", "--set", "a.reg=3", "--no-refit")
    first = json.loads(
        rankfold("compare", home / "data", *names, "--out", home / "o", "--json").out
    )
    again = rankfold(*shlex.split(first["command"])[1:], "--json")
    assert again.code == 0
    assert json.loads(again.out) == first  # only the same comparison is resumed


def test_a_sweep_of_strings(rankfold: Command, home: Path) -> None:
    done = rankfold(*words(home, "--sweep", "reg=1,500", "--json"))
    assert json.loads(done.out)["sweep"]["values"] == ["1", "500"]


def test_without_jinja2_there_is_no_page(
    rankfold: Command, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "rankfold.report.compare", None)
    done = rankfold(*words(home))
    assert done.code == 0
    assert "rankfold[report]" in done.err
    assert "None" not in done.err
    assert not (home / "out/report.html").exists()
    assert (home / "out/results.json").exists()


def test_an_interrupt_says_how_to_resume(
    rankfold: Command, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as now:
        now.setattr("rankfold.tasks.compare.runner.fit", interrupt)
        done = rankfold(*words(home))
    assert done.code == 130
    assert "the same command resumes the comparison" in done.err
    assert rankfold(*words(home)).code == 0


def test_invalid_input_gets_an_error_with_a_hint(rankfold: Command, home: Path) -> None:
    done = rankfold("compare", home / "data", "--methods", "ease,bqr", "--out", home / "out")
    assert done.code == 2
    assert "there is no method 'bqr'" in done.err
    assert "did you mean bpr" in done.err
    assert rankfold(*words(home, "--budget", "soon")).code == 2


def test_the_exit_code_is_2_if_every_method_fails(
    rankfold: Command, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rankfold.tasks.compare.runner.fit", lambda *_, **__: 1 / 0)
    done = rankfold(*words(home))
    assert done.code == 2
    assert "ease failed: ZeroDivisionError" in done.err
    assert "every method failed" in done.err


def test_options_are_those_of_python() -> None:
    shown = {name: p.default for name, p in signature(compare.command).parameters.items()}
    own = {name: p.default for name, p in signature(CompareOptions).parameters.items()}
    assert shown.keys() - OWN == own.keys() - {"settings", "progress"}
    assert {shown[name] for name in shown.keys() - OWN - {"out"}} == {None}  # None: not given


def test_wrong_protocol_gets_one_error_with_a_hint(rankfold: Command, home: Path) -> None:
    done = rankfold("compare", home / "data", "--protocol", "stong", "--out", home / "out")
    assert (done.code, done.out) == (2, "")
    assert done.err.splitlines() == [
        "error: there is no protocol 'stong'",
        "hint: did you mean strong?",
    ]
    assert not (home / "out").exists()


def test_given_options_override_a_protocol(rankfold: Command, home: Path) -> None:
    how = ("--methods", "ease,popularity", "--trials", 1, "--metrics", "hit@5", "--refit")
    done = rankfold(
        "compare", home / "data", "--protocol", "strong", *how, "--out", home / "out", "--json"
    )
    assert done.code == 0, done.err
    results = json.loads(done.out)
    assert (results["metrics"], results["selected_by"]) == (["hit@5"], "ndcg@100")
    assert results["refit"]  # the protocol has none
    assert results["budget"]["trials"] == 1
    assert results["methods"][0]["settings"]["largest"] == 50_000
    again = rankfold(*shlex.split(results["command"])[1:], "--json")
    assert json.loads(again.out) == results
