/**
 * The provider `token-broker`: gets a token for one cluster from an internal broker with a JSON
 * API. Both the broker's key (the value `brokerKey`) and the token are handles, whose bytes this
 * program does not see.
 *
 *     POST {endpoint}
 *     {"cluster":"prod","server":"https://…","ttlSeconds":900}
 *
 *     200 {"token":"…","expiresAt":"2026-01-02T04:04:05Z"}
 */

import { now } from 'tollgate:plugin/clock@0.1.0';
import { send } from 'tollgate:plugin/egress@0.1.0';
import { select } from 'tollgate:plugin/json-path@0.1.0';
import { get } from 'tollgate:plugin/secrets@0.1.0';

/** With shorter lifetimes the operator gets a warning. */
const MIN_USEFUL_TTL_SECONDS = 300;
/** The longest wait a broker can ask for. Longer ones are cut to it. */
const MAX_RETRY_AFTER_MS = 600_000;
/** 9999-12-30T22:00:00Z, the end of the gateway's calendar. Later instants are cut to it. */
const LATEST_MS = 253_402_207_200_000;
/** Name of the secret value. */
const KEY = 'brokerKey';

export const credentials = {
  /** Returns warnings for the operator, or throws what is wrong. */
  check(text) {
    const { ttlSeconds } = configuration(text);
    if (ttlSeconds !== undefined && ttlSeconds < MIN_USEFUL_TTL_SECONDS) {
      return [`ttlSeconds is ${ttlSeconds}: below ${MIN_USEFUL_TTL_SECONDS} the broker is asked very often`];
    }
    return [];
  },

  mint(input) {
    const config = configuration(input.config);
    const key = attempt(() => get(KEY), (reason) => secretError(reason, `the secret value \`${KEY}\``));
    const body = { cluster: input.cluster.name, server: input.cluster.server, ttlSeconds: config.ttlSeconds };
    const sentAt = now();
    const answer = attempt(
      () =>
        send({
          method: 'post',
          url: config.endpoint,
          query: [],
          headers: [
            { name: 'accept', value: [text('application/json')] },
            { name: 'content-type', value: [text('application/json')] },
            { name: 'authorization', value: [text('Bearer '), secret(key)] },
          ],
          body: [text(JSON.stringify(body))],
          capture: ['$.token'],
          timeoutMs: 0,
        }),
      egressError,
    );
    if (answer.status < 200 || answer.status > 299) {
      throw refusal(answer, sentAt);
    }
    const [token] = answer.captured;
    if (token === undefined) {
      throw failure('permanent', 'answer.incomplete', 'the answer has no string `token`', about(answer));
    }
    return { token, headers: [], ...expiry(member(answer.body, '$.expiresAt'), sentAt) };
  },

  /** Does nothing: the broker's tokens expire by themselves. */
  revoke() {},
};

/** Reads the configuration. The host has already checked its types with the manifest's schema. */
function configuration(json) {
  const config = JSON.parse(json);
  const endpoint = attempt(
    () => new URL(config.endpoint),
    () => failure('config', 'config.endpoint', '`endpoint` is not a URL'),
  );
  if (endpoint.username || endpoint.password || /[?#]/.test(config.endpoint)) {
    throw failure('config', 'config.endpoint', '`endpoint` may have a path, but no user, query or fragment');
  }
  return config;
}

/** When a token expires, and whether it may be used more than once. */
function expiry(value, sentAt) {
  if (value === undefined || value === null) {
    return { cacheable: true, warnings: [] };
  }
  const end = typeof value === 'string' ? instant(value) : undefined;
  if (end === undefined) {
    return { cacheable: true, warnings: ['expiresAt unparseable: the lifetime is unknown'] };
  }
  return end > sentAt
    ? { expiresAt: end, cacheable: true, warnings: [] }
    : { expiresAt: sentAt, cacheable: false, warnings: [] };
}

/** A date of RFC 3339 in milliseconds since 1970. Undefined for earlier dates. */
function instant(value) {
  const date = /^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(\.\d{1,3})?\d*(Z|[+-]\d\d:\d\d)$/.exec(value.trim().toUpperCase());
  const time = date ? Date.parse(`${date[1]}${date[2] ?? ''}${date[3]}`) : NaN;
  return time >= 0 ? BigInt(Math.min(time, LATEST_MS)) : undefined;
}

/** The error for an answer whose status is not 2xx. */
function refusal(answer, sentAt) {
  const reason = member(answer.body, '$.message') ?? member(answer.body, '$.error');
  const message = typeof reason === 'string' && reason !== '' ? reason : 'the broker does not say why';
  const kind = statusClass(answer.status);
  const details = about(answer);
  if (kind === 'retryable') {
    details.retryAfterMs = retryAfter(field(answer, 'retry-after'), sentAt);
  }
  return failure(kind, `http.${answer.status}`, `the broker answered ${answer.status}: ${message}`, details);
}

/** The class of a status that is not 2xx. */
function statusClass(status) {
  if ([408, 425, 429].includes(status)) return 'retryable';
  if ([401, 403].includes(status)) return 'denied';
  if (status >= 300 && status <= 499) return 'config';
  return status >= 500 && status <= 599 && ![501, 505].includes(status) ? 'retryable' : 'permanent';
}

/** The wait of a `Retry-After` field in either form (RFC 9110, section 10.2.3), in milliseconds. */
function retryAfter(value, sentAt) {
  if (value === undefined) return undefined;
  const wait = /^\d+$/.test(value) ? Number(value) * 1000 : Date.parse(value) - Number(sentAt);
  return Number.isNaN(wait) ? undefined : Math.min(Math.max(wait, 0), MAX_RETRY_AFTER_MS);
}

/** The details of an error that come from the answer. */
function about(answer) {
  return { httpStatus: answer.status, correlation: field(answer, 'x-request-id') };
}

function field(answer, wanted) {
  return answer.headers.find(([name]) => name === wanted)?.[1].trim();
}

/** A node of the body. The host parses the JSON; undefined if it is invalid or has no such node. */
function member(body, path) {
  try {
    const node = select(body, path);
    return node === undefined ? undefined : JSON.parse(node);
  } catch {
    return undefined;
  }
}

function secretError(reason, what) {
  const words = { 'not-found': 'is missing', 'not-granted': 'is not granted to the plugin', 'too-large': 'is too large' };
  return failure('config', `secret.${reason}`, `${what} ${words[reason] ?? 'has the wrong form'}`);
}

/** The error for a request that was not sent or got no answer. */
function egressError({ tag, val }) {
  switch (tag) {
    case 'denied':
      return failure('config', /^egress\.[a-z-]+(?=:)/.exec(val)?.[0] ?? 'egress.denied', val);
    case 'invalid-request':
    case 'tls':
      return failure('config', `egress.${tag}`, val);
    case 'dns':
    case 'connect':
      return failure('retryable', `egress.${tag}`, val);
    case 'timeout':
      return failure('retryable', 'egress.timeout', 'no answer in time');
    case 'truncated':
      return failure('retryable', 'egress.truncated', 'the connection broke within the answer');
    case 'secret':
      return secretError(val, 'a secret of the request');
    default:
      return failure('permanent', `egress.${tag}`, 'the answer or the call is too large');
  }
}

function failure(kind, code, message, details = {}) {
  return { tag: kind, val: { code, message, ...details } };
}

/** Calls the host. `translate` turns the payload of its exception into the error to throw. */
function attempt(call, translate) {
  try {
    return call();
  } catch (thrown) {
    throw translate(thrown.payload);
  }
}

function text(val) {
  return { tag: 'text', val };
}

function secret(value) {
  return { tag: 'secret', val: { value, encoding: 'raw' } };
}
