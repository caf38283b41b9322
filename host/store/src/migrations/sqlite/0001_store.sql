-- Times are microseconds since 1970; ids are the 16 bytes of a UUID; hashes are
-- SHA-256. Names and numbers of people are copies: the directory may forget them.

CREATE TABLE tokens (
    id           BLOB   NOT NULL PRIMARY KEY,
    hash         BLOB   NOT NULL UNIQUE,
    name         TEXT   NOT NULL,
    user_id      BIGINT NOT NULL,
    username     TEXT   NOT NULL,
    agent_id     BIGINT NOT NULL,
    scopes       TEXT   NOT NULL,
    created_at   BIGINT NOT NULL,
    expires_at   BIGINT NOT NULL,
    revoked_at   BIGINT,
    last_used_at BIGINT
);
CREATE INDEX tokens_user ON tokens (user_id, created_at);
CREATE INDEX tokens_agent ON tokens (agent_id, created_at);
CREATE INDEX tokens_expires ON tokens (expires_at);

CREATE TABLE browser_sessions (
    id         BLOB   NOT NULL PRIMARY KEY,
    hash       BLOB   NOT NULL UNIQUE,
    csrf       BLOB   NOT NULL,
    user_id    BIGINT NOT NULL,
    username   TEXT   NOT NULL,
    created_at BIGINT NOT NULL,
    expires_at BIGINT NOT NULL,
    revoked_at BIGINT
);
CREATE INDEX browser_sessions_user ON browser_sessions (user_id, created_at);
CREATE INDEX browser_sessions_expires ON browser_sessions (expires_at);

-- AUTOINCREMENT never gives a number twice, also when the last row is gone.
CREATE TABLE revocations (
    sequence INTEGER PRIMARY KEY AUTOINCREMENT,
    session  TEXT    NOT NULL UNIQUE,
    until    BIGINT  NOT NULL
);
CREATE INDEX revocations_until ON revocations (until);

CREATE TABLE audit (
    id       BLOB   NOT NULL PRIMARY KEY,
    first_at BIGINT NOT NULL,
    last_at  BIGINT NOT NULL,
    count    BIGINT NOT NULL,
    action   TEXT   NOT NULL,
    username TEXT   NOT NULL,
    user_id  BIGINT,
    owner_id BIGINT,
    agent_id BIGINT,
    session  TEXT,
    details  TEXT   NOT NULL
);
CREATE INDEX audit_user ON audit (user_id, id);
CREATE INDEX audit_owner ON audit (owner_id, id);
CREATE INDEX audit_agent ON audit (agent_id, id);
CREATE INDEX audit_action ON audit (action, id);
CREATE INDEX audit_last ON audit (last_at);

-- One row for each session, agent and replica that served it.
CREATE TABLE seen (
    session      TEXT   NOT NULL,
    agent_id     BIGINT NOT NULL,
    replica      BLOB   NOT NULL,
    user_id      BIGINT NOT NULL,
    username     TEXT   NOT NULL,
    first_at     BIGINT NOT NULL,
    last_at      BIGINT NOT NULL,
    client       TEXT   NOT NULL,
    requests     BIGINT NOT NULL,
    open_streams BIGINT NOT NULL,
    expires_at   BIGINT,
    PRIMARY KEY (session, agent_id, replica)
);
CREATE INDEX seen_last ON seen (last_at);
