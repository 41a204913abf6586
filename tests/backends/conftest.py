"""Engines to try on both backends."""

from collections.abc import Iterator

import pytest

from tests.helpers.engines import ENGINE_MODELS, EngineModel
from tests.helpers.tiny import lora_of, policy_of
from tests.helpers.updates import trained


@pytest.fixture(scope="module", params=ENGINE_MODELS)
def models(request: pytest.FixtureRequest) -> Iterator[EngineModel]:
    """Each model on each backend, as an engine runs it."""
    models = ENGINE_MODELS[request.param]()
    yield models
    models.close()


@pytest.fixture(scope="session")
def adapter(model_folder: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A trained adapter of the model in model_folder, on disk."""
    path = tmp_path_factory.mktemp("adapter")
    trained(policy_of(lora_of(model_folder, dropout=0.5))).machine.export(path)
    return str(path)
