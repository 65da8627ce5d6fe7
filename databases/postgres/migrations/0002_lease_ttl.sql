-- How long the lease lasts, as its holder asked. An expiry much further away was written under a wrong clock: the lease
-- counts as expired.
ALTER TABLE {p}lease ADD COLUMN ttl_ms bigint;
