"""An account with targets is never deleted, and one without is deleted without a look at the targets.

A foreign key without an index reads all of fanout_runtarget for every account that is deleted, and an index costs a third
of the speed at which deliveries are written. So triggers keep the same promise: `fanout_sender` lists the accounts that
have had targets, and only those are looked up.
"""

TABLE = "CREATE TABLE fanout_sender (account_id bigint PRIMARY KEY);"

FUNCTIONS = """
CREATE FUNCTION fanout_hold_senders(senders bigint[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  held int;
BEGIN
  -- Whoever deletes one of them waits for our commit, and then finds our targets.
  PERFORM 1 FROM accounts_account WHERE id = ANY(senders) ORDER BY id FOR KEY SHARE;
  GET DIAGNOSTICS held = ROW_COUNT;
  IF held < cardinality(senders) THEN
    RAISE foreign_key_violation USING MESSAGE = 'a run target names an account that does not exist';
  END IF;
  INSERT INTO fanout_sender SELECT unnest(senders) ORDER BY 1 ON CONFLICT DO NOTHING;
END $$;

CREATE FUNCTION fanout_senders_inserted() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  PERFORM fanout_hold_senders(ARRAY(SELECT DISTINCT account_id FROM new_rows));
  RETURN NULL;
END $$;

CREATE FUNCTION fanout_sender_changed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  PERFORM fanout_hold_senders(ARRAY[NEW.account_id]);
  RETURN NULL;
END $$;

CREATE FUNCTION fanout_account_deleted() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  DELETE FROM fanout_sender WHERE account_id = OLD.id;
  IF FOUND AND EXISTS (SELECT 1 FROM fanout_runtarget WHERE account_id = OLD.id) THEN
    RAISE foreign_key_violation USING MESSAGE = format('account %s still has run targets', OLD.id);
  END IF;
  RETURN NULL;
END $$;
"""

TRIGGERS = """
CREATE TRIGGER fanout_runtarget_senders AFTER INSERT ON fanout_runtarget
  REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION fanout_senders_inserted();
-- Named in the SET list only when targets move to another account: no delivery fires it.
CREATE TRIGGER fanout_runtarget_sender AFTER UPDATE OF account_id ON fanout_runtarget
  FOR EACH ROW WHEN (NEW.account_id <> OLD.account_id) EXECUTE FUNCTION fanout_sender_changed();
CREATE TRIGGER fanout_account_deleted AFTER DELETE ON accounts_account
  FOR EACH ROW EXECUTE FUNCTION fanout_account_deleted();
"""

SQL = TABLE + FUNCTIONS + TRIGGERS
