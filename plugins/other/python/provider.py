"""The provider `session-broker`: gets a token for one cluster from an internal
broker with an API of HTML forms, and revokes the token when it is released.

User name, password (the values `brokerUser` and `brokerPassword`) and token are
handles, whose bytes this program does not see.

    POST {endpoint}                      Basic authentication (RFC 7617)
    cluster=prod&server=https%3A%2F%2F…&lifetime=900

    200 {"access_token":"…","expires_in":900}

    POST {endpoint}/revoke
    token=…
"""

import json
import math
from email.utils import parsedate_to_datetime
from typing import Any, NoReturn, Optional
from urllib.parse import quote_plus, urlsplit

from componentize_py_types import Err
from wit_world import exports
from wit_world.exports.credentials import Credential
from wit_world.imports import clock, egress, json_path, provider_types, secrets

# The longest wait a broker can ask for. Longer ones are cut to it.
MAX_RETRY_AFTER_MS = 600_000
# 9999-12-30T22:00:00Z, the end of the gateway's calendar. Later instants are cut to it.
LATEST_MS = 253_402_207_200_000

CLASSES = {
    "retryable": provider_types.MintError_Retryable,
    "denied": provider_types.MintError_Denied,
    "config": provider_types.MintError_Config,
    "permanent": provider_types.MintError_Permanent,
}


class Credentials(exports.Credentials):
    """The exports. Each call runs in a fresh instance."""

    def check(self, config: str) -> list[str]:
        if "lifetimeSeconds" in configuration(config):
            return []
        return ["lifetimeSeconds is not set: the broker decides how long a session lasts"]

    def mint(self, input: provider_types.MintInput) -> Credential:
        config = configuration(input.config)
        form = {"cluster": input.cluster.name, "server": input.cluster.server}
        if "lifetimeSeconds" in config:
            form["lifetime"] = str(config["lifetimeSeconds"])
        body = "&".join(f"{name}={quote_plus(value)}" for name, value in form.items())
        sent_at = clock.now()
        answer = post(config["endpoint"], [secrets.Part_Text(body)], ["$.access_token"])
        if not 200 <= answer.status <= 299:
            refuse(answer, sent_at)
        token = answer.captured[0]
        if token is None:
            fail("permanent", "answer.incomplete", "the answer has no string `access_token`", **about(answer))
        expires_at, cacheable, warnings = expiry(member(answer.body, "$.expires_in"), sent_at)
        # The credential takes ownership of its handles, so the revocation needs a separate one.
        revocation = compose([part(token, secrets.Encoding.RAW)], secrets.Encoding.RAW, "the token")
        return Credential(token, None, [], expires_at, cacheable, revocation, warnings)

    def revoke(self, config: str, revocation: secrets.Secret) -> None:
        endpoint = configuration(config)["endpoint"].rstrip("/")
        sent_at = clock.now()
        body = [secrets.Part_Text("token="), part(revocation, secrets.Encoding.FORM)]
        answer = post(f"{endpoint}/revoke", body, [])
        if not 200 <= answer.status <= 299:
            refuse(answer, sent_at)


def configuration(text: str) -> dict[str, Any]:
    """Reads the configuration. The host has already checked its types with the manifest's schema."""
    config = json.loads(text)
    try:
        endpoint = urlsplit(config["endpoint"])
        endpoint.port
    except ValueError:
        fail("config", "config.endpoint", "`endpoint` is not a URL")
    if not endpoint.hostname or "@" in endpoint.netloc or any(letter in config["endpoint"] for letter in "?#"):
        fail("config", "config.endpoint", "`endpoint` has a host and may have a path, but no user, query or fragment")
    return config


def post(url: str, body: list[secrets.Part], capture: list[str]) -> egress.Response:
    """Sends a form, with the broker's user name and password."""
    pair = [part(value("brokerUser"), secrets.Encoding.RAW), secrets.Part_Text(":")]
    pair.append(part(value("brokerPassword"), secrets.Encoding.RAW))
    basic = compose(pair, secrets.Encoding.BASE64, "name and password")
    headers = [
        egress.Header("accept", [secrets.Part_Text("application/json")]),
        egress.Header("content-type", [secrets.Part_Text("application/x-www-form-urlencoded")]),
        egress.Header("authorization", [secrets.Part_Text("Basic "), part(basic, secrets.Encoding.RAW)]),
    ]
    try:
        return egress.send(egress.Request(egress.Method.POST, url, [], headers, body, capture, 0))
    except Err as error:
        egress_failed(error.value)


def value(name: str) -> secrets.Secret:
    try:
        return secrets.get(name)
    except Err as error:
        secret_failed(error.value, f"the secret value `{name}`")


def compose(parts: list[secrets.Part], encoding: secrets.Encoding, what: str) -> secrets.Secret:
    try:
        return secrets.compose(parts, encoding)
    except Err as error:
        secret_failed(error.value, what)


def part(handle: secrets.Secret, encoding: secrets.Encoding) -> secrets.Part:
    return secrets.Part_Secret(secrets.SecretRef(handle, encoding))


def expiry(expires_in: Any, sent_at: int) -> tuple[Optional[int], bool, list[str]]:
    """When a token expires, and whether it may be used more than once, with warnings."""
    if expires_in is None:
        return None, True, []
    seconds = number(expires_in)
    if seconds is None:
        return None, True, ["expires_in unparseable: the lifetime is unknown"]
    end = min(sent_at + round(max(seconds, 0.0) * 1000), LATEST_MS)
    return end, end > sent_at, []


def number(value: Any) -> Optional[float]:
    """A finite number, or a string that contains one."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        seconds = float(value)
    except (ValueError, OverflowError):
        return None
    return seconds if math.isfinite(seconds) else None


def refuse(answer: egress.Response, sent_at: int) -> NoReturn:
    """Fails with the error for an answer whose status is not 2xx."""
    reason = member(answer.body, "$.error_description") or member(answer.body, "$.error")
    reason = reason if isinstance(reason, str) else "the broker does not say why"
    kind = status_class(answer.status)
    wait = retry_after(field(answer, "retry-after"), sent_at) if kind == "retryable" else None
    message = f"the broker answered {answer.status}: {reason}"
    fail(kind, f"http.{answer.status}", message, wait=wait, **about(answer))


def status_class(status: int) -> str:
    """The class of a status that is not 2xx."""
    if status in (408, 425, 429):
        return "retryable"
    if status in (401, 403):
        return "denied"
    if 300 <= status <= 499:
        return "config"
    return "retryable" if 500 <= status <= 599 and status not in (501, 505) else "permanent"


def retry_after(value: Optional[str], sent_at: int) -> Optional[int]:
    """The wait of a `Retry-After` field in either form (RFC 9110, section 10.2.3), in milliseconds."""
    if value is None:
        return None
    if value.isascii() and value.isdigit():
        # Python refuses to parse numbers with thousands of digits.
        wait = int(value[:12]) * 1000
    else:
        try:
            wait = int(parsedate_to_datetime(value).timestamp() * 1000) - sent_at
        except (ValueError, OverflowError):
            return None
    return min(max(wait, 0), MAX_RETRY_AFTER_MS)


def about(answer: egress.Response) -> dict[str, Any]:
    """The details of an error that come from the answer."""
    return {"status": answer.status, "correlation": field(answer, "x-request-id")}


def field(answer: egress.Response, wanted: str) -> Optional[str]:
    return next((value.strip() for name, value in answer.headers if name == wanted), None)


def member(body: bytes, path: str) -> Any:
    """A node of the body. The host parses the JSON; None if it is invalid or has no such node."""
    try:
        node = json_path.select(body, path)
        return None if node is None else json.loads(node)
    except (Err, ValueError):
        return None


def secret_failed(error: secrets.SecretError, what: str) -> NoReturn:
    words = {
        secrets.SecretError.NOT_FOUND: "is missing",
        secrets.SecretError.NOT_GRANTED: "is not granted to the plugin",
        secrets.SecretError.BAD_FORMAT: "has the wrong form",
        secrets.SecretError.TOO_LARGE: "is too large",
    }
    fail("config", f"secret.{error.name.lower().replace('_', '-')}", f"{what} {words[error]}")


def egress_failed(error: egress.EgressError) -> NoReturn:
    """Fails with the error for a request that was not sent or got no answer."""
    match error:
        case egress.EgressError_Denied(reason):
            code = reason.split(":")[0]
            known = code.startswith("egress.") and " " not in code
            fail("config", code if known else "egress.denied", reason)
        case egress.EgressError_InvalidRequest(reason):
            fail("config", "egress.invalid-request", reason)
        case egress.EgressError_Tls(reason):
            fail("config", "egress.tls", reason)
        case egress.EgressError_Dns(reason):
            fail("retryable", "egress.dns", reason)
        case egress.EgressError_Connect(reason):
            fail("retryable", "egress.connect", reason)
        case egress.EgressError_Timeout():
            fail("retryable", "egress.timeout", "no answer in time")
        case egress.EgressError_Truncated():
            fail("retryable", "egress.truncated", "the connection broke within the answer")
        case egress.EgressError_Secret(reason):
            secret_failed(reason, "a secret of the request")
        case _:
            fail("permanent", "egress.too-large", "the answer or the call is too large")


def fail(
    kind: str,
    code: str,
    message: str,
    status: Optional[int] = None,
    wait: Optional[int] = None,
    correlation: Optional[str] = None,
) -> NoReturn:
    raise Err(CLASSES[kind](provider_types.ErrorInfo(code, message, status, wait, correlation)))
