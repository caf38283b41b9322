-- People who signed in at the gateway itself, by a browser or by `tollgate login`. The claims are those
-- that their issuer vouched for then.
CREATE TABLE logins (
    id         BYTEA NOT NULL PRIMARY KEY,
    hash       BYTEA NOT NULL UNIQUE,
    kind       TEXT NOT NULL,
    issuer     TEXT NOT NULL,
    subject    TEXT NOT NULL,
    sid        TEXT,
    username   TEXT NOT NULL,
    user_id    BIGINT NOT NULL,
    claims     TEXT NOT NULL,
    client     TEXT NOT NULL,
    address    TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    used_at    BIGINT NOT NULL,
    expires_at BIGINT NOT NULL,
    revoked_at BIGINT
);
CREATE INDEX logins_subject ON logins (issuer, subject);
CREATE INDEX logins_user ON logins (username, created_at);
CREATE INDEX logins_created ON logins (created_at, id);
CREATE INDEX logins_expires ON logins (expires_at);

-- Tokens that a login makes for kubectl, which end after minutes and with the login.
CREATE TABLE login_tokens (
    hash       BYTEA NOT NULL PRIMARY KEY,
    login      BYTEA NOT NULL,
    agent_id   BIGINT,
    agent      TEXT,
    identity   TEXT NOT NULL,
    is_mapped  BIGINT NOT NULL,
    expires_at BIGINT NOT NULL
);
CREATE INDEX login_tokens_expires ON login_tokens (expires_at);

-- Logins of the command line that a person has yet to approve in a browser.
CREATE TABLE login_requests (
    id         BYTEA NOT NULL PRIMARY KEY,
    code       BYTEA NOT NULL UNIQUE,
    user_code  BYTEA UNIQUE,
    challenge  TEXT,
    client     TEXT NOT NULL,
    address    TEXT NOT NULL,
    login      BYTEA,
    state      TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    expires_at BIGINT NOT NULL
);
CREATE INDEX login_requests_expires ON login_requests (expires_at);
CREATE INDEX login_requests_address ON login_requests (address);

-- Logout tokens of issuers, each of which counts once.
CREATE TABLE logout_tokens (
    id    BYTEA NOT NULL PRIMARY KEY,
    until BIGINT NOT NULL
);
CREATE INDEX logout_tokens_until ON logout_tokens (until);

-- People who may do nothing until they are unlocked, by any of their names.
CREATE TABLE person_locks (
    name      TEXT NOT NULL PRIMARY KEY,
    locked_at BIGINT NOT NULL,
    locked_by TEXT NOT NULL,
    reason    TEXT NOT NULL
);
