"""The command ``python -m opwright serve``."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

from . import _core
from ._program import load_plugins


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command."""
    parser.add_argument(
        "models", metavar="[NAME=]ENGINE", nargs="+", help="an engine file; its name is the file's"
    )
    parser.add_argument(
        "--ranks",
        type=int,
        default=1,
        help="models are manifests of shards for so many ranks, each a process of this host",
    )
    parser.add_argument("--host", default="127.0.0.1", help="the address (default: %(default)s)")
    parser.add_argument("--port", type=int, default=8000, help="the port; 0: a free one")
    parser.add_argument(
        "--max-queue",
        type=int,
        default=256,
        help="of each model, the most requests that wait or run; further ones get 503",
    )
    parser.add_argument(
        "--delay",
        type=float,
        default=0.0,
        metavar="MS",
        help="how many milliseconds a request waits at most for others to make a batch with",
    )
    parser.add_argument(
        "--instances", type=int, default=1, help="of each model, how many batches run at once"
    )
    parser.add_argument(
        "--max-batch",
        type=int,
        default=0,
        help="the most rows of a batch; 1: no batching; 0: as the profiles say (default)",
    )
    parser.add_argument(
        "--max-connections",
        type=int,
        default=1000,
        help="the most connections; further ones get 503 (default: %(default)s)",
    )
    for name, default, what in (
        ("head", 10, "a request's line and headers have to come"),
        ("body", 60, "a request's body has to come"),
        ("idle", 5, "a connection has to ask for something again"),
        ("answer", 60, "a client has to take a part of an answer that waits for it"),
    ):
        parser.add_argument(
            f"--{name}-seconds",
            type=float,
            default=default,
            metavar="SECONDS",
            help=f"within which {what}; the connection is closed otherwise (default: %(default)s)",
        )
    parser.add_argument(
        "--plugins",
        action="append",
        default=[],
        metavar="FILE",
        help="a plugin library, or a Python file of plugins, to load first (repeatable)",
    )
    parser.add_argument(
        "--otel",
        action="store_true",
        help="send spans of requests by OpenTelemetry, to where the variables OTEL_... say",
    )
    parser.add_argument(
        "--allow-host-code", action="store_true", help="run code for the host in engine files"
    )
    parser.add_argument(
        "--allow-device-code", action="store_true", help="run code for a GPU in engine files"
    )


def _paths(models: list[str]) -> dict[str, str]:
    paths: dict[str, str] = {}
    for each in models:
        name, equals, path = each.partition("=")
        if not equals or (Path(each).exists() and not Path(path).exists()):
            file = Path(each)
            name = file.parent.stem if file.suffix == ".json" else file.stem
            path = each
        if not name or "/" in name:
            raise ValueError(f"'{name}' is no name of a model; give one as NAME={path}")
        if name in paths:
            raise ValueError(f"two models have the name '{name}'; name them as NAME=FILE")
        paths[name] = path
    return paths


def serve(options: argparse.Namespace) -> int:
    """Serves until SIGINT or SIGTERM. Accepted requests are answered before the end, which has
    status 0.

    Before it serves, a signal ends the process at once, as without a handler. So does a second
    SIGINT while requests are still being answered.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        import uvicorn
        import uvloop

        from .serving import ModelOptions, Repository, create_app
        from .serving._http import ConnectionLimits, protocol_for
    except ModuleNotFoundError as error:
        print(
            f"opwright serve needs the module '{error.name}': pip install 'opwright[serve]'",
            file=sys.stderr,
        )
        return 2
    provider = None
    if options.otel:
        from .serving._tracing import exporting_provider

        try:
            provider = exporting_provider()
        except ModuleNotFoundError as error:
            print(
                f"opwright serve --otel needs the module '{error.name}': pip install 'opwright[otel]'",
                file=sys.stderr,
            )
            return 2
    load = {
        "allow_host_code": options.allow_host_code,
        "allow_device_code": options.allow_device_code,
    }
    try:
        model_options = ModelOptions(
            options.max_queue,
            options.delay / 1e3,
            options.instances,
            options.max_batch,
            load,
            options.ranks,
            tuple(options.plugins),
        )
        limits = ConnectionLimits(
            options.max_connections,
            options.head_seconds,
            options.body_seconds,
            options.idle_seconds,
            options.answer_seconds,
        )
        for file in options.plugins:
            load_plugins(file)
        repository = Repository(_paths(options.models), model_options)
    except (_core.Error, ValueError) as error:
        print(f"opwright serve: {error}", file=sys.stderr)
        return 1

    async def reload() -> None:
        failed = await repository.reload()
        for name, reason in failed.items():
            print(f"opwright serve: '{name}' goes on as it is: {reason}", file=sys.stderr)
        print(f"opwright serve: loaded anew, {len(failed)} failed", file=sys.stderr)

    @contextlib.asynccontextmanager
    async def lifespan(app: object) -> AsyncIterator[None]:
        loop = asyncio.get_running_loop()
        tasks = set()

        def start_reload() -> None:
            task = loop.create_task(reload())
            tasks.add(task)  # the loop itself keeps only weak references
            task.add_done_callback(tasks.discard)

        loop.add_signal_handler(signal.SIGHUP, start_reload)
        yield

    config = uvicorn.Config(
        create_app(
            repository,
            read_seconds=limits.body_seconds,
            tracer_provider=provider,
            lifespan=lifespan,
        ),
        options.host,
        options.port,
        http=protocol_for(repository, limits, provider),  # type: ignore[arg-type]
        ws="none",
        log_level="warning",
        access_log=False,
        proxy_headers=False,  # nothing asks who the client is
    )
    server = uvicorn.Server(config)

    async def run() -> None:
        running = asyncio.ensure_future(server.serve())
        while not server.started and not running.done():
            await asyncio.sleep(0.01)
        for listener in (
            (s for each in server.servers for s in each.sockets) if server.started else ()
        ):
            host, port = listener.getsockname()[:2]
            print(f"opwright serve: http://{host}:{port}", file=sys.stderr, flush=True)
        await running
        if server.force_exit:  # set by a second SIGINT
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            signal.raise_signal(signal.SIGINT)

    def obey(number: int, frame: object) -> None:
        signal.signal(number, signal.SIG_DFL)
        # When uvicorn is done, it raises a signal that it has obeyed once more.
        if not server.should_exit:
            signal.raise_signal(number)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, obey)
    uvloop.run(run())
    if provider is not None:
        provider.shutdown()  # sends the remaining spans
    return 0 if server.started else 1
