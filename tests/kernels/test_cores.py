"""The cores that a process may use follow its container's quota."""

import os
from pathlib import Path

import pytest
import torch

from rankfold.kernels.threads import limited_threads, n_threads, usable_cores

CORES = len(os.sched_getaffinity(0))


@pytest.mark.parametrize(
    ("text", "cores"),
    [("max 100000", CORES), ("100000 100000", 1), ("50000 100000", 1), ("broken", CORES)],
)
def test_quota_of_cgroup_2(text: str, cores: int, tmp_path: Path) -> None:
    (tmp_path / "cpu.max").write_text(text + "\n")
    assert usable_cores(tmp_path) == cores


@pytest.mark.parametrize(("quota", "cores"), [("-1", CORES), ("100000", 1)])
def test_quota_of_cgroup_1(quota: str, cores: int, tmp_path: Path) -> None:
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpu" / "cpu.cfs_quota_us").write_text(quota)
    (tmp_path / "cpu" / "cpu.cfs_period_us").write_text("100000")
    assert usable_cores(tmp_path) == cores


def test_without_cgroups_all_cores_count(tmp_path: Path) -> None:
    assert usable_cores(tmp_path) == CORES


def test_torch_gets_no_more_threads_than_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    monkeypatch.setattr("rankfold.kernels.threads.usable_cores", lambda: 2)
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    with limited_threads(own=False):
        assert torch.get_num_threads() == 3  # an explicit number stays
    monkeypatch.delenv("OMP_NUM_THREADS")
    with limited_threads(own=False):
        assert torch.get_num_threads() == 2
    with limited_threads(own=True), limited_threads(own=False):
        assert torch.get_num_threads() == 1
        assert n_threads() == 2
    assert torch.get_num_threads() == 3
    torch.set_num_threads(before)
