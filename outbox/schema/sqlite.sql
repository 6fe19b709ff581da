-- One row for each message or cancel. created_us and until_us are microseconds since 1970.
CREATE TABLE IF NOT EXISTS {prefix}outbox (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    queue      TEXT    NOT NULL,
    kind       TEXT    NOT NULL DEFAULT 'send', -- or 'cancel', whose payload is a key
    payload    BLOB    NOT NULL,
    options    BLOB    NOT NULL DEFAULT x'',    -- JSON of a delayqueue.Description; '': none
    created_us INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000000 AS INTEGER))
               CHECK (typeof(created_us) = 'integer'),
    number     INTEGER,                         -- NULL: waits for its number; 0: dead
    error      TEXT                             -- of a dead row
);
CREATE INDEX IF NOT EXISTS {prefix}outbox_waiting ON {prefix}outbox (queue, id) WHERE number IS NULL;
CREATE INDEX IF NOT EXISTS {prefix}outbox_numbered ON {prefix}outbox (queue, number) WHERE number IS NOT NULL;

-- One row for each queue.
CREATE TABLE IF NOT EXISTS {prefix}outbox_queues (
    queue     TEXT    PRIMARY KEY,
    sequence  TEXT    NOT NULL,            -- its name in Redis (WithSequence)
    numbered  INTEGER NOT NULL DEFAULT 0,  -- the highest number of a row
    confirmed INTEGER NOT NULL DEFAULT 0,  -- rows up to this number are in Redis
    forgotten INTEGER NOT NULL DEFAULT 0,  -- rows up to this number are sent again, if they are sent
    marks     TEXT    NOT NULL DEFAULT '', -- which rows were in Redis when: what may be deleted
    holder    TEXT    NOT NULL DEFAULT '', -- the Box that relays
    until_us  INTEGER NOT NULL DEFAULT 0,  -- and how long no other may
    sent      INTEGER NOT NULL DEFAULT 0,
    healed    INTEGER NOT NULL DEFAULT 0,
    refused   INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;
