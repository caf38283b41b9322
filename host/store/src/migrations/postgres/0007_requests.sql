-- Searches for a verb of a resource, such as who watched Secrets. Each of the two alone is often common:
-- to find that nobody did both took the database a look at every event.
CREATE INDEX audit_request ON audit (verb, resource, id) WHERE verb IS NOT NULL;
