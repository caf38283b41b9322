-- Logins of the command line are bounded by the client's network: in IPv6 a /64, which one machine may have.
ALTER TABLE login_requests ADD COLUMN network TEXT NOT NULL DEFAULT '';
CREATE INDEX login_requests_network ON login_requests (network);
