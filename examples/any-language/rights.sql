-- What the role of an application needs, here "payments_app". Nothing else of the schema semel is for it.
GRANT USAGE ON SCHEMA semel TO payments_app;
GRANT SELECT ON semel.migrations TO payments_app;
GRANT SELECT, INSERT, UPDATE ON semel.records TO payments_app;
GRANT SELECT, INSERT, DELETE ON semel.outcomes TO payments_app;

-- Its own tables.
GRANT SELECT, UPDATE ON accounts TO payments_app;
GRANT INSERT ON payments TO payments_app;
