-- After a restore into another cluster, the transaction ids in rows and progress have no meaning: new transactions may
-- have lower ids, and their rows would count as settled long ago.

-- Identifies this cluster; null without the privilege to ask.
CREATE FUNCTION {p}outbox_cluster_here() RETURNS bigint LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN (SELECT system_identifier FROM pg_control_system());
EXCEPTION
    WHEN insufficient_privilege THEN RETURN NULL;
END
$$;
CREATE TABLE {p}outbox_cluster (system_identifier bigint);
INSERT INTO {p}outbox_cluster SELECT {p}outbox_cluster_here();

-- Whether the tables were last used in another cluster, or contain snapshots from the future.
CREATE FUNCTION {p}outbox_is_foreign() RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT EXISTS (SELECT 1 FROM {p}outbox_cluster
                   WHERE system_identifier <> coalesce({p}outbox_cluster_here(), system_identifier))
        OR EXISTS (SELECT 1 FROM {p}outbox_place
                   WHERE greatest(pg_snapshot_xmax(s1), pg_snapshot_xmax(s2)) > pg_snapshot_xmax(pg_current_snapshot()))
$$;

-- Deletes settled rows, rewrites the others under a transaction id of this cluster, and resets every shard to before
-- them. A row whose id had not been drawn when its shard was last settled is new, whatever its transaction id is.
CREATE FUNCTION {p}outbox_rebase() RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    LOCK TABLE {p}outbox_cluster IN ACCESS EXCLUSIVE MODE;
    IF NOT {p}outbox_is_foreign() THEN
        RETURN;
    END IF;
    PERFORM 1 FROM {p}lease_holder WHERE starts_with(name, 'outbox/') ORDER BY name FOR NO KEY UPDATE;
    DELETE FROM {p}outbox o USING {p}outbox_place place
    WHERE place.shard = {p}shard_of(o.key, o.id) AND o.id <= place.top_id
      AND {p}outbox_is_settled(o.xid, o.id, place.s1, place.s2, place.last_id, place.done);
    UPDATE {p}outbox SET xid = pg_current_xact_id();
    INSERT INTO {p}outbox_progress (shards, s1, top_id)
    SELECT array_agg(shard), '3:3:', (SELECT last_value FROM {p}outbox_id_seq) FROM {p}outbox_place;
    UPDATE {p}outbox_cluster SET system_identifier = {p}outbox_cluster_here();
    -- Running relays must drop what they remember about ids and transactions.
    UPDATE {p}outbox_alive SET token = gen_random_uuid();
END
$$;
