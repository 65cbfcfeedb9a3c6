-- The business of the example: accounts, and what was taken from them.
CREATE TABLE accounts (
    id            text   PRIMARY KEY,
    balance_cents bigint NOT NULL CHECK (balance_cents >= 0),
    -- SHA-256 of the token that payments_service.py is called with.
    token_hash    bytea  UNIQUE
);

CREATE TABLE payments (
    id      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    account text   NOT NULL REFERENCES accounts,
    cents   bigint NOT NULL CHECK (cents > 0)
);
