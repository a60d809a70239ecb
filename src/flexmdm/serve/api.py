"""The HTTP API: requests are checked, become jobs of the `Engine`, and their samples become answers."""

from __future__ import annotations

import asyncio
import hmac
import math
import time
import uuid
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from random import SystemRandom
from typing import Any

from fastapi import Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse, StreamingResponse
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from flexmdm.serve.engine import Closed, Engine, Full, Job
from flexmdm.serve.protocol import (
    LONGEST_TEXT,
    MOST_DRAWS,
    MOST_TEXTS,
    Choice,
    Completion,
    CompletionRequest,
    ErrorResponse,
    Filling,
    Infilling,
    InfillRequest,
    Usage,
)
from flexmdm.tasks.pipeline import Answer, Generated, Pipeline, of_each
from flexmdm.tasks.text.pipeline import pieces_of

LARGEST_BODY = 1 << 20  # bytes
_LOOK = 0.2  # seconds between looks whether a client is still there
_ERRORS: dict[int | str, dict[str, Any]] = {
    code: {"model": ErrorResponse} for code in (400, 401, 404, 413, 422, 429, 503, 504)
}


class Gone(Exception):
    """Raised when a client has left."""


class Refusal(Exception):
    """An answer that is an error: its status, and headers if it needs some."""

    def __init__(self, status: int, message: str, **headers: str) -> None:
        super().__init__(message)
        self.status, self.headers = status, {name.replace("_", "-"): value for name, value in headers.items()}


@dataclass(frozen=True)
class Asked:
    """Texts as the pieces around their gaps, and how they are to be filled."""

    texts: Sequence[Sequence[str]]
    num: int  # draws for each text
    best: int  # of which so many are kept, the most probable first; 0 keeps all as they are drawn
    seed: int
    minimum: int
    maximum: int | None
    options: dict[str, Any]


class Service:
    """A pipeline and its engine; counts what they do."""

    def __init__(self, name: str, pipeline: Pipeline, engine: Engine, timeout: float) -> None:
        self.name, self.pipeline, self.engine, self.timeout = name, pipeline, engine, timeout
        self.counts: Counter[str] = Counter()
        self.responses: Counter[int] = Counter()
        self.started = time.time()

    async def answers(self, asked: Asked, request: Request) -> list[Answer]:
        """Return the answers to each text, or the most probable ones, the best first."""
        pipeline, tokens, job = self.pipeline, *self._submitted(asked)
        try:
            found = await self._result(job.result, request)
            answers = [
                pipeline.decode(asked.texts[one.prompt], tokens[one.prompt], job.prompts[one.prompt], one)
                for one in found
            ]
            if asked.best:
                rank = self.engine.call(lambda: pipeline.most_probable(answers, found, asked.best, asked.seed))
                answers = await self._result(rank, request)
        except (Gone, asyncio.CancelledError):
            self.engine.cancel(job)
            raise
        self._count(answers)
        return answers

    def stream(self, asked: Asked, request: Request) -> AsyncIterator[tuple[int, Answer]]:
        """Return an iterator over the answers, with their numbers, that yields each as soon as it is there."""
        queue: asyncio.Queue[tuple[int, Generated]] = asyncio.Queue()
        loop = asyncio.get_running_loop()

        def finished(number: int, one: Generated) -> None:
            loop.call_soon_threadsafe(queue.put_nowait, (number, one))

        tokens, job = self._submitted(asked, finished)
        return self._streamed(asked, tokens, job, queue, request)

    async def _streamed(
        self, asked: Asked, tokens: Any, job: Job, queue: asyncio.Queue[tuple[int, Generated]], request: Request
    ) -> AsyncIterator[tuple[int, Answer]]:
        try:
            for _ in range(len(job)):
                number, one = await self._next(queue, job, request)
                text = asked.texts[one.prompt]
                answer = self.pipeline.decode(text, tokens[one.prompt], job.prompts[one.prompt], one)
                self._count([answer])
                yield number, answer
        finally:
            self.engine.cancel(job)  # of one that is finished nothing is left to cancel

    def _submitted(self, asked: Asked, listener: Callable[[int, Generated], None] | None = None) -> tuple[Any, Job]:
        pipeline, limits = self.pipeline, {"minimum": asked.minimum, "maximum": asked.maximum}
        try:
            tokens = of_each(asked.texts, pipeline.encode)
            prompts = of_each(tokens, lambda one: pipeline.prompt(one, **limits))
            job = self.engine.submit(prompts, asked.num, asked.seed, "filling", listener=listener, **asked.options)
        except ValueError as error:
            raise Refusal(400, str(error)) from error
        except Full as error:
            raise Refusal(429, f"{error}: ask again later", Retry_After="1") from error
        except Closed as error:
            raise Refusal(503, str(error), Retry_After="5") from error
        return tokens, job

    async def _result(self, future: Any, request: Request) -> Any:
        waited = asyncio.wrap_future(future)
        until = time.monotonic() + self.timeout
        while not (await asyncio.wait([waited], timeout=_LOOK))[0]:
            await self._check(request, until)
        return waited.result()

    async def _next(self, queue: asyncio.Queue, job: Job, request: Request) -> tuple[int, Generated]:
        until = time.monotonic() + self.timeout
        while True:
            try:
                return await asyncio.wait_for(queue.get(), _LOOK)
            except TimeoutError:
                if job.result.done() and job.result.exception() is not None:
                    raise job.result.exception() from None  # ty: ignore[invalid-raise]
                await self._check(request, until)

    async def _check(self, request: Request, until: float) -> None:
        if time.monotonic() > until:
            self.counts["timeouts"] += 1
            raise Refusal(504, f"no answer within {self.timeout:g} seconds: ask for fewer answers or steps")
        if await request.is_disconnected():
            self.counts["cancelled"] += 1
            raise Gone

    def _count(self, answers: Sequence[Answer]) -> None:
        self.counts["answers"] += len(answers)
        self.counts["tokens"] += sum(len(answer.tokens) for answer in answers)

    def metrics(self) -> str:
        """Return the counts as Prometheus reads them."""
        lines = [f"# TYPE flexmdm_{name}_total counter\nflexmdm_{name}_total {self.counts[name]}" for name in _COUNTED]
        lines.append("# TYPE flexmdm_responses_total counter")
        lines += [f'flexmdm_responses_total{{status="{code}"}} {n}' for code, n in sorted(self.responses.items())]
        gauges = {"unfinished_samples": self.engine.unfinished, "uptime_seconds": time.time() - self.started}
        lines += [f"# TYPE flexmdm_{name} gauge\nflexmdm_{name} {value:g}" for name, value in gauges.items()]
        lines.append(f"# TYPE flexmdm_steps_total counter\nflexmdm_steps_total {self.engine.steps}")
        return "\n".join(lines) + "\n"


_COUNTED = ("answers", "tokens", "cancelled", "timeouts")


def make_app(
    name: str, pipeline: Pipeline, engine: Engine | None = None, token: str | None = None, timeout: float = 120.0
) -> FastAPI:
    """Return the application that answers with one model.

    Args:
        name: of the model, as /v1/models tells it.
        pipeline: of a run on text.
        engine: what generates; by default a new one, which ends with the application.
        token: what requests have to bring as a bearer token; without one everybody is answered.
        timeout: seconds after which a request is given up.
    """
    service = Service(name, pipeline, engine or Engine(pipeline), timeout)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncGenerator[None]:
        yield
        await asyncio.to_thread(service.engine.close)

    # Without the pages of FastAPI, whose scripts come from elsewhere.
    about: dict[str, Any] = {"title": "flexmdm", "summary": f"Completions and infilling by {name}."}
    app = FastAPI(**about, lifespan=lifespan, docs_url=None, redoc_url=None)
    app.state.service = service

    app.add_middleware(_Guard, counts=service.responses)
    app.add_exception_handler(Refusal, lambda _, error: _problem(error.status, str(error), error.headers))
    app.add_exception_handler(Gone, lambda *_: _problem(499, "the client has left"))
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, lambda _, error: _problem(error.status_code, error.detail, error.headers))

    def allowed(request: Request) -> None:
        given = request.headers.get("authorization", "")
        if token is not None and not hmac.compare_digest(given.encode(), f"Bearer {token}".encode()):
            raise Refusal(401, "this server wants its token: Authorization: Bearer TOKEN", WWW_Authenticate="Bearer")

    secured: Any = {"dependencies": [Depends(allowed)], "responses": _ERRORS}

    @app.get("/health")
    def health() -> dict[str, str]:
        """Say that the server is there."""
        return {"status": "ok", "model": name}

    @app.get("/metrics", response_class=PlainTextResponse, **secured)
    def metrics() -> str:
        """Return counts as Prometheus reads them."""
        return service.metrics()

    @app.get("/v1/models", **secured)
    def models() -> dict[str, Any]:
        """Return the only model there is."""
        one = {"id": name, "object": "model", "created": int(service.started), "owned_by": "flexmdm"}
        return {"object": "list", "data": [one]}

    @app.post("/v1/completions", response_model=Completion, **secured)
    async def completions(body: CompletionRequest, request: Request) -> Any:
        """Go on behind a prompt, or fill the gap between it and a suffix."""
        _check_model(body.model, name)
        prompts = [body.prompt] if isinstance(body.prompt, str) else body.prompt
        _check_texts(prompts)
        asked = _of_completion(body, prompts)
        about: dict[str, Any] = {
            "id": f"cmpl-{uuid.uuid4().hex}",
            "created": int(time.time()),
            "model": name,
            "seed": asked.seed,
        }
        if body.stream and not asked.best:
            return _events(_chunks(service.stream(asked, request), asked, body, about))
        answers = await service.answers(asked, request)
        choices = [_choice(index, answer, asked, body, answer.request) for index, answer in enumerate(answers)]
        if body.stream:
            return _events(_each(Completion(choices=[choice], **about).model_dump_json() for choice in choices))
        return Completion(choices=choices, usage=_usage(answers), **about)

    @app.post("/v1/infill", **secured)
    async def infill(body: InfillRequest, request: Request) -> Infilling:
        """Fill the gaps of texts; of several draws the most probable are kept, the best first."""
        _check_model(body.model, name)
        texts = [body.text] if isinstance(body.text, str) else body.text
        _check_texts(texts)
        try:
            pieces = of_each(texts, lambda text: pieces_of(text, body.gap_marker))
        except ValueError as error:
            raise Refusal(400, str(error)) from error
        num, best = body.num, body.best
        if best is None:
            num, best = max(num, min(num * pipeline.draws, MOST_DRAWS)), num
        if best > num:
            raise Refusal(400, f"best is at most num: got best {best} and num {num}")
        asked = Asked(pieces, num, best, _seed(body.seed), body.min, body.max, body.sampling)
        answers = await service.answers(asked, request)
        grouped: list[list[Filling]] = [[] for _ in texts]
        for one in answers:
            found = Filling(
                text=one.text, gaps=list(one.gaps), log_prob=_finite(one.log_prob), evaluations=one.evaluations
            )
            grouped[one.request].append(found)
        return Infilling(model=name, seed=asked.seed, answers=grouped)

    return app


class _Guard:
    """Turns bodies away that are too large, and counts the statuses of all answers."""

    def __init__(self, app: ASGIApp, counts: Counter[int]) -> None:
        self.app, self.counts = app, counts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                self.counts[message["status"]] += 1
            await send(message)

        headers = dict(scope["headers"])
        length = headers.get(b"content-length")
        refused = None
        if length is None and b"transfer-encoding" in headers:
            refused = _problem(411, "say how long the body is: Content-Length")
        elif length is not None and (not length.isdigit() or int(length) > LARGEST_BODY):
            refused = _problem(413, f"a body has at most {LARGEST_BODY:,} bytes")
        await (refused or self.app)(scope, receive, counted)


def _problem(status: int, message: str, headers: Any = None) -> JSONResponse:
    kinds = {401: "authentication_error", 429: "rate_limit_error"}
    kind = kinds.get(status, "invalid_request_error" if status < 500 else "server_error")
    return JSONResponse({"error": {"message": message, "type": kind, "code": status}}, status, headers)


def _invalid(_: Request, error: Any) -> JSONResponse:
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"] if part != "body")
    return _problem(422, f"{where}: {first['msg']}" if where else first["msg"])


def _check_model(asked: str | None, name: str) -> None:
    if asked is not None and asked != name:
        raise Refusal(404, f"there is no model {asked!r} here, only {name!r}")


def _check_texts(texts: Sequence[str]) -> None:
    if not 1 <= len(texts) <= MOST_TEXTS:
        raise Refusal(400, f"a request has 1 to {MOST_TEXTS} texts, this one {len(texts)}")
    if sum(map(len, texts)) > LONGEST_TEXT:
        raise Refusal(400, f"the texts of a request have at most {LONGEST_TEXT:,} characters")
    if any("\ud800" <= character <= "\udfff" for text in texts for character in text):
        raise Refusal(400, "a text has half of a surrogate pair, which is no character")


def _seed(given: int | None) -> int:
    return SystemRandom().randrange(2**31) if given is None else given


def _of_completion(body: CompletionRequest, prompts: Sequence[str]) -> Asked:
    num = body.n if body.best_of in (None, 1) else body.best_of
    if num < body.n:
        raise Refusal(400, f"best_of is at least n: got best_of {num} and n {body.n}")
    if num * len(prompts) > MOST_DRAWS * MOST_TEXTS:
        raise Refusal(400, "these are too many answers for one request")
    texts = [[prompt, body.suffix or ""] for prompt in prompts]
    return Asked(texts, num, body.n if num > body.n else 0, _seed(body.seed), 0, body.max_tokens, body.sampling)


def _choice(index: int, answer: Answer, asked: Asked, body: CompletionRequest, text: int) -> Choice:
    found = "".join(answer.gaps)
    prompt = asked.texts[text][0] if body.echo else ""
    reason = "length" if answer.hit_max_length else "stop"
    return Choice(text=prompt + found, index=index, log_prob=_finite(answer.log_prob), finish_reason=reason)


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _usage(answers: Sequence[Answer]) -> Usage:
    given = sum(token is not None for answer in answers for token in answer.prompt.tokens)
    total = sum(len(answer.tokens) for answer in answers)
    return Usage(prompt_tokens=given, completion_tokens=max(total - given, 0), total_tokens=max(total, given))


async def _chunks(
    answers: AsyncIterator[tuple[int, Answer]], asked: Asked, body: CompletionRequest, about: dict[str, Any]
) -> AsyncIterator[str]:
    """Yield each answer as JSON; an error on the way is the last one."""
    try:
        async for number, answer in answers:
            choice = _choice(number, answer, asked, body, number // body.n)
            yield Completion(choices=[choice], **about).model_dump_json()
    except Gone:
        return
    except Refusal as error:
        yield bytes(_problem(error.status, str(error)).body).decode()


async def _each(texts: Iterable[str]) -> AsyncIterator[str]:
    for text in texts:
        yield text


def _events(texts: AsyncIterator[str]) -> StreamingResponse:
    """Return server-sent events, as clients of OpenAI read them."""

    async def events() -> AsyncIterator[str]:
        async for text in texts:
            yield f"data: {text}\n\n"
        yield "data: [DONE]\n\n"

    return StreamingResponse(events(), media_type="text/event-stream")
