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

from wordle_rl.backends.vllm.server import Request, _completion_body
from wordle_rl.policy.sampling import Sampling

FILE = Path(__file__).with_suffix(".json")
_VOLATILE = ("id", "created", "usage", "system_fingerprint", "permission", "root")
_HERE = "<adapter>"  # in place of the adapter's folder


def _answers(model: str, *prompts: list[int], **changes: Any) -> tuple[str, dict[str, Any]]:
    request = Request(
        prompts=prompts, sampling=Sampling(temperature=0.0, max_tokens=6), most=6,
        stop_ids=frozenset(range(100, 130)), vocabulary=133,
    )  # fmt: skip
    return "/v1/completions", _completion_body(model, request) | changes


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


def recorded() -> list[dict[str, Any]]:
    return json.loads(FILE.read_text(encoding="utf-8"))


def differences(found: Any, expected: Any, place: str = "") -> list[str]:
    """Where an answer is not of the recorded form. It may lack keys that nobody reads.

    Texts and whole numbers must be equal. Numbers may differ by rounding.
    """
    if isinstance(found, dict) and isinstance(expected, dict):
        new = [f"{place}.{key} is new" for key in found.keys() - expected.keys()]
        return new + [
            line
            for key in found.keys() & expected.keys()
            for line in differences(found[key], expected[key], f"{place}.{key}")
        ]
    if isinstance(found, list) and isinstance(expected, list) and len(found) == len(expected):
        return [
            line
            for i, pair in enumerate(zip(found, expected, strict=True))
            for line in differences(*pair, f"{place}[{i}]")
        ]
    if isinstance(found, float) and isinstance(expected, float):
        same = abs(found - expected) < 1e-4
    else:
        same = found == expected
    return [] if same else [f"{place} is {found!r}, not {expected!r}"]


if __name__ == "__main__":
    FILE.write_text(json.dumps(ask_all(*sys.argv[1:]), indent=1, ensure_ascii=False) + "\n")
