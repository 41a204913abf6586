"""Makes every test offline and repeatable: no hub, one thread, the same seeds in any order.

The environment is set while this file loads, before any test module imports a library.
"""

import ctypes
import functools
import gc
import importlib.util
import os
import pickle
import random
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hydra.core.plugins import Plugins
from hydra.plugins.config_source import ConfigSource

from wordle_rl.commands import build, eval_players
from wordle_rl.commands import train as train_command
from wordle_rl.game.feedback_table import feedback_table
from wordle_rl.game.knowledge import Knowledge
from wordle_rl.runs.config import expand
from wordle_rl.runs.errors import whole_command
from wordle_rl.runs.paths import CONF
from wordle_rl.words import splits as word_splits
from wordle_rl.words.lists import WordLists, load_words

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
# Sums in an order that does not depend on the number of cores; children of a test inherit it.
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["MPLBACKEND"] = "Agg"
# Looking for garbage after every 700 new objects takes 6 % of all time, and finds little.
gc.set_threshold(100_000, 50, 100)
# Freed memory is kept, because to get it again takes as long as to fill it (GNU's C library).
if mallopt := getattr(ctypes.CDLL(None), "mallopt", None):
    mallopt(-3, 2**31 - 1)  # M_MMAP_THRESHOLD
    mallopt(-1, -1)  # M_TRIM_THRESHOLD


def keep_files(source: Any) -> None:
    """Read files of conf/ and of Hydra once, which it otherwise reads in each composition."""
    read_anew, cache = source.load_config, {}

    def read_once(source: Any, config_path: str) -> Any:
        if source.path not in (str(CONF), "hydra.conf"):
            return read_anew(source, config_path)
        if config_path not in cache:
            cache[config_path] = pickle.dumps(read_anew(source, config_path))
        return pickle.loads(cache[config_path])  # a fifth of the time of a deep copy

    source.load_config = read_once


for source in Plugins.instance().discover(ConfigSource):
    if source.scheme() in ("file", "pkg"):
        keep_files(source)


def pytest_pycollect_makemodule(module_path: Path) -> None:
    """Before a test module imports MLX, let it multiply as it does in a run."""
    if "mlx" in module_path.read_text():
        from wordle_rl.backends import borrow_blas

        borrow_blas()


@pytest.fixture(autouse=True)
def same_start() -> None:
    """Generators, threads and network as at the start, whatever earlier tests did."""
    random.seed(0)
    np.random.seed(0)
    for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):  # set where processes meet
        os.environ.pop(name, None)
    # Tests of the upper layers run without torch, so it is not imported for this.
    if torch := sys.modules.get("torch"):
        torch.default_generator.manual_seed(0)  # manual_seed looks for devices each time
        torch.set_num_threads(1)


@pytest.fixture(scope="session", autouse=True)
def no_pages() -> Iterator[None]:
    """Runs in this process write no report.html, which takes a second or two."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(train_command, "write_page", lambda folder, **_: None)
        yield


@pytest.fixture(scope="session", autouse=True)
def cache_that_can_be_written(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Where the home folder is read-only, computed tables are kept for the session all the same."""
    if "WORDLE_RL_CACHE" in os.environ:
        return
    folder = Path.home() / ".cache" / "wordle-rl"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        read_only = not os.access(folder, os.W_OK)
    except OSError:
        read_only = True
    if read_only:
        os.environ["WORDLE_RL_CACHE"] = str(tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="session", autouse=True)
def word_lists_are_read_once() -> Iterator[None]:
    """Building an experiment takes a fifth of a second otherwise, and the tests build hundreds."""
    tables = functools.cache(feedback_table)
    build_knowledge = functools.cache(lambda words: Knowledge(words, tables(words)))
    load_original = functools.cache(load_words)

    def read(**lists: Any) -> WordLists:
        return load_words(**lists) if any(lists.values()) else load_original()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(word_splits, "load_words", read)
        for module in (build, eval_players):
            patch.setattr(module, "feedback_table", tables)
            patch.setattr(module, "Knowledge", lambda words, table: build_knowledge(words))
        yield


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """An empty folder that runs are trained into."""
    path = tmp_path / "runs"
    path.mkdir()
    return path


@pytest.fixture(scope="session")
def original() -> Knowledge:
    """What the original word lists let one know."""
    words = load_words()
    return Knowledge(words, feedback_table(words))


@pytest.fixture
def quiet() -> Iterator[None]:
    """Lets Lightning and transformers advise the user, as they do in small runs."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=UserWarning, module="lightning|transformers")
        yield


@pytest.fixture(params=["torch", "mlx"])
def backend(request: pytest.FixtureRequest) -> Any:
    """What a test asks of a backend. A test that takes this runs on torch and on MLX."""
    if request.param == "mlx" and importlib.util.find_spec("mlx_lm") is None:
        pytest.skip("MLX is for Linux and Apple silicon")
    from tests.helpers.backends import BACKENDS

    return BACKENDS[request.param]()


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    """An untrained model with its tokenizer, as a user would have it on disk."""
    from tests.helpers.tiny import qwen, qwen_like_tokenizer

    path = tmp_path_factory.mktemp("base")
    qwen(340).save_pretrained(path)
    qwen_like_tokenizer().save_pretrained(path)
    return str(path)


@pytest.fixture
def refused(capsys, monkeypatch) -> Callable[[Callable[[], object]], str]:
    """Runs a command that must fail. Returns its one line."""

    from tests.helpers.commands import error_of

    def run(command: Callable[[], object]) -> str:
        monkeypatch.setattr(sys, "argv", ["train.py"])
        capsys.readouterr()
        with pytest.raises(SystemExit) as stop, whole_command():
            command()
        line = error_of(capsys.readouterr().err)
        assert stop.value.code == 2
        return line

    return run


@pytest.fixture
def study_plan() -> Iterator[Any]:
    """The plan that python train.py -m ... makes before its first trial."""
    from hydra._internal.hydra import Hydra
    from hydra._internal.utils import create_config_search_path
    from hydra.core.global_hydra import GlobalHydra
    from hydra.types import HydraContext, RunMode

    def plan(*arguments: str) -> Any:
        GlobalHydra.instance().clear()
        hydra = Hydra.create_main_hydra2("train", create_config_search_path(str(CONF)))
        config = hydra.compose_config(
            "config", expand(arguments), run_mode=RunMode.MULTIRUN, with_log_configuration=False
        )
        loader: Any = hydra.config_loader
        sweeper: Any = Plugins.instance().instantiate_sweeper(
            hydra_context=HydraContext(config_loader=loader, callbacks=None),
            task_function=lambda _: None,
            config=config,
        )
        return sweeper.plan(list(config.hydra.overrides.task))

    yield plan
    GlobalHydra.instance().clear()
