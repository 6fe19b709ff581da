
-- Wakes a Box at each commit (Listen).
CREATE OR REPLACE FUNCTION {prefix}outbox_notify() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN PERFORM pg_notify('{prefix}outbox', ''); RETURN NULL; END $$;
DROP TRIGGER IF EXISTS {prefix}outbox_notify ON {prefix}outbox;
CREATE TRIGGER {prefix}outbox_notify AFTER INSERT ON {prefix}outbox
    FOR EACH STATEMENT EXECUTE FUNCTION {prefix}outbox_notify();
