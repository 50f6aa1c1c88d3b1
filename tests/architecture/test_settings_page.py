"""The generated page of settings names every setting of methods and diagnoses with its help."""

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

from rankfold.config import declarations
from rankfold.methods import METHODS
from rankfold.tasks.diagnose import DIAGNOSES

PAGE = Path(__file__).parents[2] / "docs" / "settings_page.py"


def test_page_has_every_setting_with_its_help() -> None:
    spec = spec_from_file_location("settings_page", PAGE)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    sections = module.settings_page().split("\n## ")[1:]
    configs = {name: one.config for name, one in METHODS.items()}
    configs |= {f"diagnose {name}": one.config for name, one in DIAGNOSES.items()}
    assert [section.partition("\n")[0] for section in sections] == list(configs)
    for section, config in zip(sections, configs.values(), strict=True):
        for name, declared in declarations(config).items():
            assert f"| `{name}` |" in section
            assert declared.help in section
