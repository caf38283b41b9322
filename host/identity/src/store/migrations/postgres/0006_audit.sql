-- What a request was about, so that the audit log can be searched for it.
ALTER TABLE audit ADD COLUMN verb TEXT;
ALTER TABLE audit ADD COLUMN resource TEXT;
ALTER TABLE audit ADD COLUMN subresource TEXT;
ALTER TABLE audit ADD COLUMN namespace TEXT;
ALTER TABLE audit ADD COLUMN name TEXT;
-- No jsonb has a NUL, so texts with one are left out.
UPDATE audit SET
    verb = parsed.details ->> 'verb',
    resource = parsed.details ->> 'resource',
    subresource = parsed.details ->> 'subresource',
    namespace = parsed.details ->> 'namespace',
    name = parsed.details ->> 'name'
FROM (
    SELECT id, CASE WHEN position('\u0000' IN details) = 0 THEN details::jsonb END AS details FROM audit
) AS parsed
WHERE audit.id = parsed.id AND parsed.details ->> 'verb' IS NOT NULL;
-- Events without the value are left out: most events of tokens and agents have none.
CREATE INDEX audit_session ON audit (session, id) WHERE session IS NOT NULL;
CREATE INDEX audit_verb ON audit (verb, id) WHERE verb IS NOT NULL;
CREATE INDEX audit_resource ON audit (resource, id) WHERE resource IS NOT NULL;
CREATE INDEX audit_subresource ON audit (subresource, id) WHERE subresource IS NOT NULL;
CREATE INDEX audit_namespace ON audit (namespace, id) WHERE namespace IS NOT NULL;
CREATE INDEX audit_name ON audit (name, id) WHERE name IS NOT NULL;

-- Events that have yet to be exported, with the count they then had.
CREATE TABLE audit_unexported (
    id    BYTEA NOT NULL PRIMARY KEY,
    count BIGINT NOT NULL
);

-- What one process at a time does for all that share the database, and until when it may.
CREATE TABLE leases (
    name   TEXT NOT NULL PRIMARY KEY,
    holder BYTEA NOT NULL,
    until  BIGINT NOT NULL
);
