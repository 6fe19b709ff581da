-- One row for each message or cancel. created_us and until_us are microseconds since 1970 by this server's clock.
CREATE TABLE IF NOT EXISTS {prefix}outbox (
    id         BIGINT          NOT NULL AUTO_INCREMENT PRIMARY KEY,
    queue      VARBINARY(1000) NOT NULL,
    kind       VARCHAR(8)      NOT NULL DEFAULT 'send', -- or 'cancel', whose payload is a key
    payload    LONGBLOB        NOT NULL,
    options    MEDIUMBLOB      NOT NULL,                -- JSON of a delayqueue.Description; '': none
    created_us BIGINT          NOT NULL,
    number     BIGINT,                                  -- NULL: waits for its number; 0: dead
    error      TEXT CHARACTER SET utf8mb4,              -- of a dead row
    INDEX {prefix}outbox_number (queue, number, id)
) ENGINE = InnoDB;

-- One row for each queue.
CREATE TABLE IF NOT EXISTS {prefix}outbox_queues (
    queue     VARBINARY(1000) NOT NULL PRIMARY KEY,
    sequence  VARCHAR(255)    NOT NULL,            -- its name in Redis (WithSequence)
    numbered  BIGINT          NOT NULL DEFAULT 0,  -- the highest number of a row
    confirmed BIGINT          NOT NULL DEFAULT 0,  -- rows up to this number are in Redis
    forgotten BIGINT          NOT NULL DEFAULT 0,  -- rows up to this number are sent again, if they are sent
    marks     TEXT            NOT NULL,            -- which rows were in Redis when: what may be deleted
    holder    VARCHAR(64)     NOT NULL DEFAULT '', -- the Box that relays
    until_us  BIGINT          NOT NULL DEFAULT 0,  -- and how long no other may
    sent      BIGINT          NOT NULL DEFAULT 0,
    healed    BIGINT          NOT NULL DEFAULT 0,
    refused   BIGINT          NOT NULL DEFAULT 0
) ENGINE = InnoDB;
