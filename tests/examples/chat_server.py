"""An OpenAI-compatible chat server of a model folder: python chat_server.py FOLDER MAX_TOKENS.

Answers greedily by transformers' own template and generate, so it shares no code with the package.
Each answer is one event of a stream. Prints its address once it listens on loopback.
"""

import json
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
model = AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype=torch.float32).eval()
stops = model.generation_config.eos_token_id
stops = set(stops if isinstance(stops, list) else [stops])


class Chat(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        ids = tokenizer.apply_chat_template(
            request["messages"], add_generation_prompt=True, return_tensors="pt", return_dict=True
        )
        with torch.inference_mode():
            output = model.generate(**ids, do_sample=False, max_new_tokens=int(sys.argv[2]))
        answer = output[0, ids["input_ids"].shape[1] :].tolist()
        text = tokenizer.decode(answer, skip_special_tokens=True)
        reason = "stop" if answer[-1] in stops else "length"
        delta = {"role": "assistant", "content": text}
        chunk = {
            "id": "chat",
            "object": "chat.completion.chunk",
            "created": 0,
            "model": request["model"],
            "choices": [{"index": 0, "delta": delta, "finish_reason": reason}],
        }
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        self.wfile.write(f"data: {json.dumps(chunk)}\n\ndata: [DONE]\n\n".encode())

    def log_message(self, *_: object) -> None:
        pass


server = HTTPServer(("127.0.0.1", 0), Chat)
print(f"http://127.0.0.1:{server.server_port}/v1", flush=True)
server.serve_forever()
