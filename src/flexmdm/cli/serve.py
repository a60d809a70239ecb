"""`flexmdm serve`: a model behind an HTTP API."""

from __future__ import annotations

import ipaddress
import socket
from pathlib import Path
from typing import Annotated

import typer

from flexmdm.cli import shared

EXAMPLES = shared.examples("""
flexmdm serve --pretrained text
flexmdm serve runs/mine --port 9000
flexmdm serve runs/mine --host 0.0.0.0 --token-file token.txt
curl http://127.0.0.1:8000/v1/infill -H 'Content-Type: application/json' -d '{"text": "I want ___ go home.", "num": 3}'
""")


def serve(
    *,
    run: shared.Run = None,
    pretrained: shared.Pretrained = None,
    host: Annotated[str, typer.Option(help="Address to listen at; beyond this machine only with --token-file.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port to listen at.")] = 8000,
    token_file: Annotated[
        Path | None, typer.Option(help="File with the token that requests have to bring.", dir_okay=False)
    ] = None,
    tokens_in_flight: Annotated[int, typer.Option(min=1, help="Most tokens under way at a time.")] = 16_384,
    most_waiting: Annotated[
        int, typer.Option(min=1, help="Most answers that may be waited for; beyond, requests are refused (429).")
    ] = 2048,
    timeout: Annotated[float, typer.Option(min=1.0, help="Seconds after which a request is given up.")] = 120.0,
    device: shared.Device = None,
) -> None:
    """Answer requests over HTTP: completions as clients of OpenAI send them, and infilling."""
    token = _token(token_file)
    if token is None and not _is_loopback(host):
        raise ValueError(
            f"--host {host} can be reached from other machines: give a --token-file, whose token requests have to bring"
        )
    listener = _listener(host, port)
    import uvicorn

    from flexmdm.generation.loop import Room
    from flexmdm.serve.api import make_app
    from flexmdm.serve.engine import Engine
    from flexmdm.tasks.text.pipeline import TextPipeline

    task, model = shared.load(run, pretrained, device, None)
    pipeline = task.pipeline(model)
    if not isinstance(pipeline, TextPipeline):
        raise ValueError(f"{run or pretrained} was trained on the task {task.name}; runs on text are served")
    name = pretrained or Path(run or "").name
    engine = Engine(pipeline, Room(256, tokens_in_flight), most_waiting)
    app = make_app(name, pipeline, engine, token, timeout)
    typer.echo(f"{name} answers at http://{host}:{port} (its API: http://{host}:{port}/openapi.json); Ctrl-C ends it")
    settings = uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=int(timeout) + 5)
    uvicorn.Server(settings).run(sockets=[listener])


def _listener(host: str, port: int) -> socket.socket:
    """Return the socket to listen at; taken first, so that nothing is loaded for a port that somebody else has."""
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        raise OSError(
            f"nothing can listen at {host}:{port} ({error.strerror}): take another --port, or end what listens there"
        ) from error


def _token(file: Path | None) -> str | None:
    if file is None:
        return None
    token = file.read_text(encoding="utf-8").strip()
    if len(token) < 16 or not token.isascii() or any(c.isspace() for c in token):
        raise ValueError(
            f"{file}: a token is one line of at least 16 characters without spaces, such as 32 random ones"
        )
    return token


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
