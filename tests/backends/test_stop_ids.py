"""The ids that end an answer, from a model's generation config."""

from __future__ import annotations

import json

import pytest

from wordle_rl.backends.hf_tokenizer import read_stop_ids


@pytest.mark.parametrize(("given", "found"), [(7, (7,)), ([7, 9], (7, 9)), (None, ())])
def test_a_generation_config_may_have_one_several_or_no_stop_ids(given, found, tmp_path):
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": given}))
    assert read_stop_ids(str(tmp_path)) == found


def test_a_model_without_a_generation_config_has_none(tmp_path):
    assert read_stop_ids(str(tmp_path)) == ()
