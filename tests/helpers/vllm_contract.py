"""What a vLLM server is asked, and what vLLM 0.32 answered: vllm_contract.json.

The model is embedded/tiny, served as `tiny`. `make vllm` compares a real server with the file. To
write it anew: python -m tests.helpers.vllm_contract <url> <folder of an adapter of tiny>
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import httpx2

from wordle_rl.backends.vllm import Request
from wordle_rl.policy.sampling import Sampling

FILE = Path(__file__).with_suffix(".json")
_VOLATILE = ("id", "created", "usage", "system_fingerprint", "permission", "root")
_HERE = "<adapter>"  # in place of the adapter's folder


def _answers(model: str, *prompts: list[int], **changes: Any) -> tuple[str, dict[str, Any]]:
    request = Request(
        prompts=prompts, sampling=Sampling(temperature=0.0, max_tokens=6), most=6,
        stop_ids=frozenset(range(100, 130)), vocabulary=133,
    )  # fmt: skip
    return "/v1/completions", request.body(model) | changes


def requests(adapter: str) -> list[tuple[str, dict[str, Any] | None]]:
    """Path and body of each request, in order. A request without a body is a GET."""
    load = {"lora_name": "mine", "lora_path": adapter, "load_inplace": True}
    return [
        ("/v1/models", None),
        ("/tokenize", {"model": "tiny", "prompt": "Crane x-✓", "add_special_tokens": False}),
        _answers("tiny", [5, 6, 7], [8, 9, 40, 41]),
        _answers("tiny", [5, 6], stop_token_ids=list(range(30, 60))),
        _answers("nobody", [5, 6]),
        _answers("tiny", [5, 99999]),
        ("/v1/load_lora_adapter", {**load, "lora_path": f"{adapter}/nowhere"}),
        ("/v1/load_lora_adapter", load),
        ("/v1/load_lora_adapter", load),
        _answers("mine", [5, 6], temperature=0.7),
        ("/v1/unload_lora_adapter", {"lora_name": "mine"}),
        ("/v1/unload_lora_adapter", {"lora_name": "mine"}),
    ]


def ask_all(url: str, adapter: str) -> list[dict[str, Any]]:
    """The server's answers without what differs each time."""
    found = []
    with httpx2.Client(base_url=url, timeout=60, trust_env=False) as client:
        for path, body in requests(adapter):
            answer = client.get(path) if body is None else client.post(path, json=body)
            said: Any = re.sub(r'(No adapter found for) [^"]*', rf"\1 {_HERE}", answer.text)
            if answer.headers.get("content-type", "").startswith("application/json"):
                said = _without_volatile(json.loads(said))
            found.append({"path": path, "status": answer.status_code, "answer": said})
    return found


def _without_volatile(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _without_volatile(v) for k, v in value.items() if k not in _VOLATILE}
    return [_without_volatile(item) for item in value] if isinstance(value, list) else value


def agrees(found: Any, expected: Any) -> bool:
    """Whether an answer is the recorded one up to rounding. It may lack keys that nobody reads."""
    if isinstance(found, dict) and isinstance(expected, dict):
        return found.keys() <= expected.keys() and all(agrees(found[k], expected[k]) for k in found)
    if isinstance(found, list) and isinstance(expected, list):
        return len(found) == len(expected) and all(map(agrees, found, expected))
    if isinstance(found, float) and isinstance(expected, float):
        return abs(found - expected) < 1e-4
    return found == expected


def assert_as_recorded(found: list[dict[str, Any]]) -> None:
    """The one answer that was drawn must have the recorded form, and all others their content."""
    for mine, theirs in zip(found, json.loads(FILE.read_text(encoding="utf-8")), strict=True):
        if isinstance(theirs["answer"], dict) and theirs["answer"].get("model") == "mine":
            [ours], [real] = mine["answer"]["choices"], theirs["answer"]["choices"]
            assert mine["status"] == theirs["status"] and ours.keys() <= real.keys()
        else:
            assert agrees(mine, theirs), f"{mine} is not {theirs}"


if __name__ == "__main__":
    FILE.write_text(json.dumps(ask_all(*sys.argv[1:]), indent=1, ensure_ascii=False) + "\n")
