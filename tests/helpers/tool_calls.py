"""Tool calls as a model writes them."""

import json


def call(content: object) -> str:
    return (
        f"<tool_call>\n{content if isinstance(content, str) else json.dumps(content)}\n</tool_call>"
    )


def guess(word: object, **fields: object) -> dict:
    return {"name": "guess", "arguments": {"word": word, **fields}}
