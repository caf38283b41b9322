-- What a request was about, so that the audit log can be searched for it. Events from before have it in
-- their details alone: to rewrite millions of rows would take an hour under a lock.
ALTER TABLE audit ADD COLUMN verb TEXT;
ALTER TABLE audit ADD COLUMN resource TEXT;
ALTER TABLE audit ADD COLUMN subresource TEXT;
ALTER TABLE audit ADD COLUMN namespace TEXT;
ALTER TABLE audit ADD COLUMN name TEXT;
-- Events without the value are left out: most events of tokens and agents have none.
CREATE INDEX audit_session ON audit (session, id) WHERE session IS NOT NULL;
CREATE INDEX audit_verb ON audit (verb, id) WHERE verb IS NOT NULL;
CREATE INDEX audit_resource ON audit (resource, id) WHERE resource IS NOT NULL;
CREATE INDEX audit_subresource ON audit (subresource, id) WHERE subresource IS NOT NULL;
CREATE INDEX audit_namespace ON audit (namespace, id) WHERE namespace IS NOT NULL;
CREATE INDEX audit_name ON audit (name, id) WHERE name IS NOT NULL;

-- Events that have yet to be exported, with the count they then had.
CREATE TABLE audit_unexported (
    id    BLOB NOT NULL PRIMARY KEY,
    count BIGINT NOT NULL
);

-- What one process at a time does for all that share the database, and until when it may.
CREATE TABLE leases (
    name   TEXT NOT NULL PRIMARY KEY,
    holder BLOB NOT NULL,
    until  BIGINT NOT NULL
);
