"""A provider that reports, in warnings, what a guest can access through WASI.

Unlike other providers it is built with WASI. For tests only.
"""

import encodings.idna  # name lookups need it, and it cannot be imported at run time
import json
import os
import socket
import sys
import time
from typing import Any, Callable, NoReturn

from componentize_py_types import Err
from wit_world import exports
from wit_world.exports.credentials import Credential
from wit_world.imports import provider_types, secrets


class Credentials(exports.Credentials):
    def check(self, config: str) -> list[str]:
        probes: dict[str, Callable[[], Any]] = {
            "environment": lambda: [sorted(os.environ), sys.argv[1:]],
            "root": lambda: os.listdir("/"),
            "file": lambda: open("/etc/passwd").read(),
            "output": lambda: open("/tmp/tollgate-surroundings", "w"),
            "name": lambda: socket.getaddrinfo("localhost", 443),
            "socket": lambda: socket.socket().connect(("127.0.0.1", json.loads(config)["port"])),
            "clock": lambda: [time.time(), time.monotonic()],
            "randomness": lambda: os.urandom(8).hex(),
        }
        return [f"{name}: {result(probe)}" for name, probe in probes.items()]

    def mint(self, input: provider_types.MintInput) -> Credential:
        print("standard output leads nowhere")
        print("nor does standard error", file=sys.stderr)
        token = secrets.wrap(repr(sorted(os.environ)).encode())
        return Credential(token, None, [], None, True, secrets.wrap(b"handle"), [])

    def revoke(self, config: str, revocation: secrets.Secret) -> NoReturn:
        info = provider_types.ErrorInfo("surroundings", "there is nothing to revoke", None, None, None)
        raise Err(provider_types.MintError_Permanent(info))


def result(probe: Callable[[], Any]) -> str:
    try:
        return repr(probe())
    except BaseException as error:
        return f"refused, {type(error).__name__}"
