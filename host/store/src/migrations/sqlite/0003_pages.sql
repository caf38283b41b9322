-- Pages of everybody's tokens and browser sessions, newest first.
CREATE INDEX tokens_created ON tokens (created_at, id);
CREATE INDEX browser_sessions_created ON browser_sessions (created_at, id);
