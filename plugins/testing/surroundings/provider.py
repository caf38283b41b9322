"""What a guest finds around itself, in the words of warnings.

Built with WASI, which a provider should not be: this one is here to look into
every corner of it.
"""

import encodings.idna  # names cannot be looked up without, and nothing is there to import later
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
        corners: dict[str, Callable[[], Any]] = {
            "environment": lambda: [sorted(os.environ), sys.argv[1:]],
            "root": lambda: os.listdir("/"),
            "file": lambda: open("/etc/passwd").read(),
            "output": lambda: open("/tmp/tollgate-surroundings", "w"),
            "name": lambda: socket.getaddrinfo("localhost", 443),
            "socket": lambda: socket.socket().connect(("127.0.0.1", json.loads(config)["port"])),
            "clock": lambda: [time.time(), time.monotonic()],
            "randomness": lambda: os.urandom(8).hex(),
        }
        return [f"{name}: {look(corner)}" for name, corner in corners.items()]

    def mint(self, input: provider_types.MintInput) -> Credential:
        print("standard output leads nowhere")
        print("nor does standard error", file=sys.stderr)
        token = secrets.wrap(repr(sorted(os.environ)).encode())
        return Credential(token, None, [], None, True, secrets.wrap(b"handle"), [])

    def revoke(self, config: str, revocation: secrets.Secret) -> NoReturn:
        info = provider_types.ErrorInfo("surroundings", "there is nothing to revoke", None, None, None)
        raise Err(provider_types.MintError_Permanent(info))


def look(corner: Callable[[], Any]) -> str:
    try:
        return repr(corner())
    except BaseException as refused:
        return f"refused, {type(refused).__name__}"
