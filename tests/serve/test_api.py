"""The API as clients use it: that of OpenAI, and plain HTTP."""

import json
import signal
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from urllib.parse import urlsplit

import pytest

openai = pytest.importorskip("openai", reason="needs the extra dev (openai)")
pytest.importorskip("fastapi", reason="needs the extra serve")
TOKEN = "correct-horse-battery-staple"


def client(address, token="none"):
    return openai.OpenAI(base_url=f"{address}/v1", api_key=token, max_retries=0)


def call(address, method, path, body=None, headers=None):
    """Return the status, the headers and the body of an answer."""
    connection = HTTPConnection(urlsplit(address).netloc, timeout=60)
    data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
    connection.request(method, path, data, {"Content-Type": "application/json", **(headers or {})})
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, dict(answer.getheaders()), json.loads(text) if text.startswith(("{", "[")) else text


def test_a_client_of_openai_completes_and_infills(server, pipeline):
    (model,) = client(server).models.list().data
    completed = client(server).completions.create(model=model.id, prompt="ab", seed=3, n=2)
    assert [one.text for one in completed.choices] == [
        answer.text[2:] for answer in pipeline.fill([["ab", ""]], 2, seed=3, purpose="filling")
    ]
    infilled = client(server).completions.create(model=model.id, prompt="a", suffix="b", seed=4, max_tokens=3)
    assert infilled.choices[0].text == pipeline.fill([["a", "b"]], seed=4, maximum=3, purpose="filling")[0].gaps[0]
    assert infilled.usage.prompt_tokens == 2 and infilled.choices[0].finish_reason in ("stop", "length")


def test_the_best_of_several_draws_comes_first(server, pipeline):
    status, _, found = call(server, "POST", "/v1/infill", {"text": "a___b", "num": 12, "best": 3, "seed": 5})
    expected = pipeline.infill("a___b", 12, full=True, best=3, seed=5)
    assert status == 200 and [one["text"] for one in found["answers"][0]] == [one.text for one in expected]
    likely = [one["log_prob"] for one in found["answers"][0]]
    assert likely == pytest.approx([one.log_prob for one in expected], rel=1e-4)


def test_a_client_of_openai_streams(server):
    same = {"model": "letters", "prompt": ["a", "b"], "seed": 6, "n": 3}
    whole = client(server).completions.create(**same)
    chunks = list(client(server).completions.create(**same, stream=True))
    streamed = {choice.index: choice.text for chunk in chunks for choice in chunk.choices}
    assert streamed == {choice.index: choice.text for choice in whole.choices} and len(chunks) == 6
    ranked = list(client(server).completions.create(**{**same, "n": 1}, best_of=4, stream=True))
    assert len(ranked) == 2


@pytest.mark.parametrize(
    "path, body, status, words",
    [
        ("/v1/completions", {"prompt": "abc"}, 400, "c"),
        ("/v1/completions", {"prompt": "a" * 13}, 400, "leaves no room"),
        ("/v1/completions", {"prompt": "a", "n": 0}, 422, "n: Input should be greater than or equal to 1"),
        ("/v1/completions", {"prompt": "a", "n": 3, "best_of": 2}, 400, "at least n"),
        ("/v1/completions", {"prompt": "a", "model": "gpt-5"}, 404, "no model 'gpt-5'"),
        ("/v1/completions", {"prompt": []}, 400, "1 to 64 texts"),
        ("/v1/completions", {"prompt": "a", "sampler": "low_confidence"}, 400, ""),
        ("/v1/infill", {"text": "ab"}, 400, "there is no gap"),
        ("/v1/infill", {"text": "a___", "min": 13}, 400, "leaves no room"),
        ("/v1/infill", {"text": "a___", "min": 3, "max": 2}, 400, ""),
        ("/v1/infill", {"num": 3}, 422, "text: Field required"),
        ("/v1/infill", b"{", 422, "JSON"),
        ("/v1/infill", b'{"text": "a\\ud800___"}', 400, "half of a surrogate pair"),
        ("/v1/infill", {"text": "a___", "top_p": 0}, 422, "top_p"),
    ],
)
def test_what_cannot_be_answered_is_refused_with_a_sentence(server, path, body, status, words):
    found, _, answer = call(server, "POST", path, body)
    assert found == status and words in answer["error"]["message"] and answer["error"]["code"] == status


def test_bodies_that_are_too_large_are_not_read(server):
    assert call(server, "POST", "/v1/infill", b"x", {"Content-Length": str(1 << 40)})[0] == 413
    assert call(server, "GET", "/v1/nothing")[0] == 404 and call(server, "GET", "/v1/infill")[0] == 405


def test_health_and_metrics(server):
    assert call(server, "GET", "/health")[2] == {"status": "ok", "model": "letters"}
    call(server, "POST", "/v1/completions", {"prompt": "a"})
    text = call(server, "GET", "/metrics")[2]
    assert 'flexmdm_responses_total{status="200"}' in text and "flexmdm_unfinished_samples 0" in text


def test_fifty_clients_at_a_time_get_what_they_get_alone(server):
    def ask(seed):
        return call(server, "POST", "/v1/completions", {"prompt": "ab"[: seed % 3], "seed": seed, "n": 1 + seed % 2})

    with ThreadPoolExecutor(50) as clients:
        together = list(clients.map(ask, range(100)))
    assert {status for status, *_ in together} == {200}
    texts = [[one["text"] for one in body["choices"]] for _, _, body in together]
    assert [[one["text"] for one in ask(seed)[2]["choices"]] for seed in range(0, 100, 9)] == texts[::9]


def test_a_client_that_leaves_is_forgotten(server):
    host = urlsplit(server).netloc.split(":")
    body = json.dumps({"prompt": "", "n": 64, "steps": 1024}).encode()
    with socket.create_connection((host[0], int(host[1]))) as one:
        head = (
            f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
        )
        one.sendall(head.encode() + b"\r\n\r\n" + body)
        time.sleep(0.5)
    until = time.monotonic() + 60
    while "flexmdm_unfinished_samples 0" not in (text := call(server, "GET", "/metrics")[2]):
        assert time.monotonic() < until
        time.sleep(0.1)
    assert "flexmdm_cancelled_total 0" not in text


def test_a_token_is_asked_for_and_when_too_much_waits_requests_are_sent_away(start, tmp_path):
    (tmp_path / "token").write_text(TOKEN + "\n")
    process, address = start("--token-file", tmp_path / "token", "--most-waiting", 2)
    status, headers, body = call(address, "GET", "/v1/models")
    assert status == 401 and headers["www-authenticate"] == "Bearer" and "token" in body["error"]["message"]
    assert [one.id for one in client(address, TOKEN).models.list().data] == ["letters"]
    allowed, found = {"Authorization": f"Bearer {TOKEN}"}, []

    def ask(seed):
        found.append(call(address, "POST", "/v1/completions", {"n": 2, "seed": seed, "steps": 512}, allowed))

    threads = [threading.Thread(target=ask, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    time.sleep(0.3)
    process.send_signal(signal.SIGTERM)  # what was accepted is answered before it ends
    for thread in threads:
        thread.join()
    assert process.wait(60) is not None
    statuses = [status for status, *_ in found]
    assert set(statuses) <= {200, 429} and 200 in statuses and 429 in statuses
    assert all(headers["retry-after"] == "1" for status, headers, _ in found if status == 429)


def test_a_port_that_is_taken_is_said_before_anything_is_loaded(folder):
    from flexmdm.cli.serve import serve

    with socket.create_server(("127.0.0.1", 0)) as other, pytest.raises(OSError, match="take another --port"):
        serve(run=str(folder / "nowhere"), port=other.getsockname()[1])


def test_no_page_loads_anything_from_elsewhere(server):
    assert {call(server, "GET", path)[0] for path in ("/docs", "/redoc")} == {404}


def test_nobody_listens_beyond_this_machine_without_a_token(folder, tmp_path):
    from flexmdm.cli.serve import serve

    with pytest.raises(ValueError, match="--token-file"):
        serve(run=str(folder), host="0.0.0.0")
    (tmp_path / "token").write_text("short")
    with pytest.raises(ValueError, match="at least 16"):
        serve(run=str(folder), host="0.0.0.0", token_file=tmp_path / "token")
