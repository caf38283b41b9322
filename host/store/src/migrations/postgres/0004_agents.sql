-- Agents of clusters that joined with a token. A row stays when its key is revoked, so that neither the
-- key nor the token comes back.
CREATE TABLE agent_keys (
    public_key BYTEA  NOT NULL PRIMARY KEY,
    server     TEXT   NOT NULL,
    join_token BYTEA  UNIQUE,
    joined_at  BIGINT NOT NULL,
    expires_at BIGINT,
    revoked_at BIGINT
);

-- Processes of the gateway, while they live, and the agents that are connected to them.
CREATE TABLE replicas (
    id          BYTEA  NOT NULL PRIMARY KEY,
    url         TEXT   NOT NULL,
    certificate BYTEA  NOT NULL,
    lease_until BIGINT NOT NULL
);
CREATE TABLE agent_connections (
    id           BYTEA  NOT NULL PRIMARY KEY,
    replica      BYTEA  NOT NULL,
    instance     BYTEA  NOT NULL,
    public_key   BYTEA  NOT NULL,
    server       TEXT   NOT NULL,
    cluster      TEXT   NOT NULL,
    version      TEXT   NOT NULL,
    address      TEXT   NOT NULL,
    connected_at BIGINT NOT NULL
);
CREATE INDEX agent_connections_replica ON agent_connections (replica);

-- Counts changes of the tables above; one row. A reader who has seen a number has seen what led to it.
CREATE TABLE agent_changes (
    id      BIGINT NOT NULL PRIMARY KEY,
    version BIGINT NOT NULL
);
INSERT INTO agent_changes (id, version) VALUES (1, 0);
