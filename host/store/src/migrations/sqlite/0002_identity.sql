-- Tokens name what their agent was, beside its number; NULL in rows of versions that did
-- not write it, which are bound when the gateway starts.
ALTER TABLE tokens ADD COLUMN agent TEXT;
CREATE INDEX tokens_unbound ON tokens (agent_id) WHERE agent IS NULL;

-- Events of one person of one kind, without a look at those of others.
CREATE INDEX audit_user_action ON audit (user_id, action, id);

-- What time it is believed to be, for removing what is past; one row.
CREATE TABLE clock (
    id      BIGINT NOT NULL PRIMARY KEY,
    reached BIGINT NOT NULL
);
