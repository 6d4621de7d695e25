"""Tests that `transformers serve` answers with an exported Llava as `predict` does."""

import base64
import json
import os
import subprocess
import sys
from http.client import HTTPConnection
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.support.families.bos_tokenizers import WITH_BOS
from tests.support.families.exported_llava import export, predicted
from tests.support.ports import free_ports


@pytest.fixture
def served(tmp_path):
    """served(folder): the port of `transformers serve` on localhost, without access to a network."""
    started = []

    def serve(folder):
        (port,) = free_ports(1)
        program = Path(sys.executable).with_name("transformers")
        command = [program, "serve", folder, "--host", "127.0.0.1", "--port", str(port), "--device", "cpu"]
        offline = {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "hub"), "OMP_NUM_THREADS": "1"}
        process = subprocess.Popen(
            command, env=os.environ | offline, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        started.append(process)
        written = []
        while "Uvicorn running on" not in (line := process.stdout.readline()):
            written.append(line)
            assert line, f"the server has ended: {''.join(written)}"
        return port

    yield serve
    for process in started:
        process.kill()
        process.communicate(timeout=30)


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_transformers_serves_the_export(tmp_path, served):
    (tmp_path / "llava").mkdir()
    parts, tokenizer = export(tmp_path / "llava", "gemma", WITH_BOS)
    pixels = np.random.default_rng(0).integers(0, 256, (24, 18, 3), np.uint8)
    Image.fromarray(pixels).save(tmp_path / "picture.png")
    tokens, _, answer = predicted(parts, tokenizer, tmp_path)
    port = served(tmp_path / "llava")
    url = f"data:image/png;base64,{base64.b64encode((tmp_path / 'picture.png').read_bytes()).decode()}"
    content = [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": "\nWhat is shown here?"}]
    body = {
        "model": str(tmp_path / "llava"),
        "messages": [{"role": "user", "content": content}],
        "temperature": 0,
        "max_tokens": 12,
    }
    connection = HTTPConnection("127.0.0.1", port, timeout=300)
    connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
    found = json.loads(connection.getresponse().read())
    connection.close()
    assert found["choices"][0]["message"]["content"] == answer
    assert len(answer) > 1
    assert found["usage"]["prompt_tokens"] == tokens.shape[1]
