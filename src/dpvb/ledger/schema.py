"""The schema `dpvb` of a PostgreSQL database: its tables, and the triggers by which it refuses what dpvb never writes.

The triggers say in SQL what `State.follow` says of the rows that are in turn, so that nobody who may append can stop
the others, or take back what they were charged. Two things they cannot compute, decimal logarithms being beyond them:
the `units` of a charge and its `favoured` order. Readers compute them anew and believe no row.

Every function has a search path of its own, on which operators, functions and types are PostgreSQL's; tables are
named with their schema. A row's `writer`, the role that appended it, is set here whatever a client sends.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from dpvb.accounting.filter import ORDERS, SATURATED
from dpvb.ledger.chain import COLUMNS, FORMAT, MAX_BODY

#: Version of tables, functions and triggers; an earlier one has other triggers, and the same rows.
VERSION = 3
#: Of version 0.2 of dpvb: it had no writers of rows, and another head.
EARLIER = 1
_TYPES = {int: "bigint", str: "text"}
_KEYS = {"seq": " PRIMARY KEY", "key": " UNIQUE"}
# Different releases of a cost: readers need time for each.
_MAX_EVENTS = 1_000
_PATH = "pg_catalog, pg_temp"


# Characters that Python has always called printable; the keeper may use others in the names of data sets.
_LETTERS = (
    " -~\u00a1-\u00ac\u00ae-\u0377\u037a-\u037f\u0384-\u038a\u038c\u038e-\u03a1\u03a3-\u052f"
    "\u3041-\u3096\u30a1-\u30ff\u4e00-\u9ffc\uac00-\ud7a3"
)
_COUNT = "'^(0|[1-9][0-9]{0,8})$'"
_ROW = " || ',' || ".join(
    f"'\"{name}\":' || " + (f"dpvb.canonical_text(one.{name})" if kind is str else f"one.{name}")
    for name, kind in sorted(COLUMNS.items())
    if name != "hash"
)

# Of each function its arguments, what it returns, how volatile it is, and its body. Without a backslash, as a setting
# of the caller decides what that means in a text. A test that comes out as NULL is a test that failed: IS NOT TRUE.
_FUNCTIONS = {
    "canonical_text": (
        "value text",
        "text",
        "IMMUTABLE",
        """
DECLARE
    spelled text := to_json(value)::text;
    letter text;
    code integer;
BEGIN
    IF octet_length(spelled) = char_length(spelled) AND strpos(spelled, chr(127)) = 0 THEN
        RETURN spelled;
    END IF;
    FOR letter IN
        SELECT DISTINCT one FROM unnest(string_to_array(spelled, NULL)) AS one WHERE ascii(one) > 126
    LOOP
        code := ascii(letter);
        spelled := replace(spelled, letter, CASE
            WHEN code < 65536 THEN chr(92) || 'u' || lpad(to_hex(code), 4, '0')
            ELSE chr(92) || 'u' || to_hex(55296 + (code - 65536) / 1024)
                || chr(92) || 'u' || to_hex(56320 + (code - 65536) % 1024)
        END);
    END LOOP;
    RETURN spelled;
END""",
    ),
    "digest": (
        "one dpvb.entry",
        "text",
        "IMMUTABLE",
        f"""
BEGIN
    RETURN encode(sha256(convert_to('{{' || {_ROW} || '}}', 'UTF8')), 'hex');
END""",
    ),
    # jsonb holds no NUL, which rows of earlier versions may hold; another character in its place changes nothing that
    # is looked at.
    "facts": (
        "body text",
        "jsonb",
        "IMMUTABLE",
        """
BEGIN
    RETURN replace(body, chr(92) || 'u0000', chr(92) || 'u0001')::jsonb;
END""",
    ),
    # Whether every reader reads the same in a text: no NUL, no blank, no key twice, no number beyond reach, no depth.
    "is_plain": (
        "body text",
        "boolean",
        "IMMUTABLE",
        f"""
DECLARE
    bones text;
    facts jsonb;
BEGIN
    IF octet_length(body) > {MAX_BODY} OR octet_length(body) <> char_length(body)
        OR strpos(body, chr(92) || 'u0000') > 0
    THEN
        RETURN false;
    END IF;
    -- Without its texts, of which the escapes go first.
    bones := regexp_replace(body, '[' || chr(92) || chr(92) || '].', '', 'g');
    bones := regexp_replace(bones, '"[^"]*"', '"', 'g');
    facts := body::jsonb;
    RETURN jsonb_typeof(facts) = 'object'
        AND bones !~ '[[:space:][:cntrl:]]' AND bones !~ '[0-9]{{26}}|[eE][+-]?[0-9]{{4}}'
        AND NOT jsonb_path_exists(facts, 'strict $.**{{60}}')
        AND NOT jsonb_path_exists(facts, 'strict $.** ? (@ > 1e300 || @ < -1e300)')
        AND (SELECT count(*) FROM regexp_matches(bones, '":', 'g')) = (
            SELECT count(*) FROM jsonb_path_query(facts, 'strict $.** ? (@.type() == "object").keyvalue()')
        );
END""",
    ),
    # The whole numbers, one for each order, of a text in canonical JSON; NULL where it is none.
    "units": (
        "numbers text",
        "numeric[]",
        "IMMUTABLE",
        f"""
DECLARE
    parts bigint[];
BEGIN
    IF numbers !~ '^[[][0-9,-]+[]]$' THEN
        RETURN NULL;
    END IF;
    parts := string_to_array(btrim(numbers, '[]'), ',')::bigint[];
    RETURN CASE
        WHEN cardinality(parts) = {len(ORDERS)} AND '[' || array_to_string(parts, ',') || ']' = numbers THEN parts
    END;
END""",
    ),
    "is_name": (
        "value jsonb",
        "boolean",
        "IMMUTABLE",
        """
DECLARE
    name text := value #>> '{}';
BEGIN
    RETURN jsonb_typeof(value) = 'string' AND char_length(name) BETWEEN 1 AND 200
        AND name !~ ('[' || chr(1) || '-' || chr(31) || chr(127) || '-' || chr(159) || ']');
END""",
    ),
    # The cap in whole units: that of the binary number that a reader makes of the text, rounded down.
    "cap": (
        "epsilon double precision",
        "bigint",
        "IMMUTABLE",
        """
DECLARE
    bits bigint := ('x' || encode(float8send(epsilon), 'hex'))::bit(64)::bigint;
    places integer := 1075 - (bits >> 52);
    whole numeric := (bits & 4503599627370495) + 4503599627370496;
BEGIN
    RETURN CASE
        WHEN epsilon < 1e-9 THEN 0
        ELSE div(whole * 1000000000, power(2::numeric, places))
    END;
END""",
    ),
    "registration_fault": (
        "one dpvb.entry, facts jsonb",
        "text",
        "STABLE",
        f"""
DECLARE
    fields text[] := ARRAY['name', 'unit', 'neighboring_relation', 'epsilon', 'delta', 'part_of'];
    whole dpvb.entry;
BEGIN
    IF (facts ?& fields AND facts - fields = '{{}}' AND facts ->> 'name' = one.dataset
        AND one.key = 'dataset/' || one.dataset AND dpvb.is_name(facts -> 'name') AND dpvb.is_name(facts -> 'unit')
        AND facts ->> 'neighboring_relation' IN ('add_or_remove_one', 'replace_one')
        AND jsonb_typeof(facts -> 'epsilon') = 'number' AND jsonb_typeof(facts -> 'delta') = 'number'
        AND jsonb_typeof(facts -> 'part_of') IN ('string', 'null')
        AND (one.run, one.attempt, one.form, one.cost, one.totals) = ('', 0, '', '', '')) IS NOT TRUE
    THEN
        RETURN 'it is not what a registration says';
    END IF;
    IF ((facts ->> 'epsilon')::float8 BETWEEN 0 AND 1e6 AND (facts ->> 'delta')::float8 > 0
        AND (facts ->> 'delta')::float8 < 1 AND one.units = dpvb.cap((facts ->> 'epsilon')::float8)) IS NOT TRUE
    THEN
        RETURN 'its cap is none';
    END IF;
    IF (one.dataset || (facts ->> 'unit') ~ '^[{_LETTERS}]*$'
        OR pg_has_role((SELECT relowner FROM pg_class WHERE oid = 'dpvb.entry'::regclass), 'MEMBER')) IS NOT TRUE
    THEN
        RETURN 'the keeper of the ledger alone registers names in such letters';
    END IF;
    IF jsonb_typeof(facts -> 'part_of') = 'null' THEN
        RETURN NULL;
    END IF;
    SELECT * INTO whole FROM dpvb.entry WHERE key = 'dataset/' || (facts ->> 'part_of');
    IF (facts ->> 'neighboring_relation' = 'add_or_remove_one'
        AND jsonb_set(facts - 'name', ARRAY['part_of'], 'null') = dpvb.facts(whole.body) - 'name'
        AND NOT dpvb.is_charged(whole.dataset)) IS NOT TRUE
    THEN
        RETURN 'it cannot become a part';
    END IF;
    RETURN NULL;
END""",
    ),
    # Whether a data set, its whole, or a part of it has been charged.
    "is_charged": (
        "name text",
        "boolean",
        "STABLE",
        """
DECLARE
    whole text;
BEGIN
    SELECT coalesce(dpvb.facts(body) ->> 'part_of', name) INTO whole FROM dpvb.entry WHERE key = 'dataset/' || name;
    RETURN EXISTS (SELECT FROM dpvb.entry WHERE dataset = whole AND totals <> '')
        OR EXISTS (
            SELECT FROM dpvb.entry AS part WHERE kind = 'dataset' AND CASE
                WHEN EXISTS (SELECT FROM dpvb.entry AS charge WHERE charge.dataset = part.dataset AND totals <> '')
                THEN dpvb.facts(body) ->> 'part_of' = whole
            END
        );
END""",
    ),
    # Whether this role may speak for the run now; only a charge may be the first row of one.
    "turn_fault": (
        "one dpvb.entry, facts jsonb",
        "text",
        "STABLE",
        """
DECLARE
    beginning dpvb.entry;
    newest dpvb.entry;
    ended text;
BEGIN
    IF (dpvb.is_name(to_jsonb(one.run)) AND one.attempt >= 0) IS NOT TRUE THEN
        RETURN 'it is of no run';
    END IF;
    SELECT * INTO beginning FROM dpvb.entry WHERE run = one.run ORDER BY seq LIMIT 1;
    IF beginning.seq IS NULL THEN
        RETURN CASE
            WHEN (one.kind IN ('charge', 'sole') OR (one.kind = 'event' AND facts ->> 'state' = 'looked')) IS NOT TRUE
            THEN 'its run was never charged'
        END;
    END IF;
    IF one.kind = 'event' AND facts ->> 'state' = 'looked' THEN
        RETURN 'a look is a run of its own';
    END IF;
    IF (beginning.writer = current_user OR (beginning.writer = '' AND one.kind <> 'refund') OR EXISTS (
        SELECT FROM pg_roles WHERE rolname = beginning.writer AND pg_has_role(oid, 'MEMBER')
    )) IS NOT TRUE THEN
        RETURN 'its run belongs to another role';
    END IF;
    SELECT * INTO newest FROM dpvb.entry WHERE run = one.run ORDER BY seq DESC LIMIT 1;
    IF newest.kind = 'event' THEN
        ended := dpvb.facts(newest.body) ->> 'state';
    END IF;
    IF newest.kind = 'refund' OR ended IN ('finished', 'looked') OR (ended = 'abandoned' AND one.kind <> 'refund') THEN
        RETURN 'its run has ended';
    END IF;
    IF one.dataset <> beginning.dataset THEN
        RETURN 'its run was charged to another data set';
    END IF;
    IF one.attempt <> newest.attempt + (one.kind = 'event' AND facts ->> 'state' = 'resumed')::integer THEN
        RETURN 'its attempt has no turn';
    END IF;
    RETURN NULL;
END""",
    ),
    "event_fault": (
        "one dpvb.entry, facts jsonb",
        "text",
        "STABLE",
        f"""
BEGIN
    IF (facts - ARRAY['state', 'step', 'digest', 'key', 'request'] = '{{}}' AND facts ?& ARRAY['step', 'digest']
        AND facts ->> 'state' IN ('started', 'released', 'resumed', 'finished', 'abandoned', 'looked')
        AND (facts ->> 'state' <> 'looked' OR (
            facts = '{{"state": "looked", "step": null, "digest": null}}' AND one.attempt = 0
        ))
        AND (facts -> 'step')::text ~ {_COUNT.replace("^(", "^(null|")}
        AND (facts -> 'digest' = 'null' OR dpvb.is_name(facts -> 'digest'))
        AND (coalesce(facts -> 'key', 'null') = 'null' OR dpvb.is_name(facts -> 'key'))
        AND (coalesce(facts -> 'request', 'null') = 'null' OR dpvb.is_name(facts -> 'request'))
        AND one.key = '["event",' || dpvb.canonical_text(one.run) || ',' || one.attempt || ','
            || dpvb.canonical_text(facts ->> 'state') || ',' || (facts -> 'step')::text || ']'
        AND (one.form, one.cost, one.totals, one.units) = ('', '', '', 0)) IS NOT TRUE
    THEN
        RETURN 'it is not what an event says';
    END IF;
    RETURN NULL;
END""",
    ),
    "charge_fault": (
        "one dpvb.entry, facts jsonb",
        "text",
        "STABLE",
        """
BEGIN
    IF (dpvb.is_name(facts -> 'kind') AND dpvb.is_name(facts -> 'plan')
        AND (facts -> 'steps')::text ~ '^(null|[[](0|[1-9][0-9]{0,8})(, (0|[1-9][0-9]{0,8}))*[]]|[[][]])$'
        AND jsonb_typeof(facts -> 'cost') = 'object'
        AND (facts -> 'owner' IS NULL OR facts ->> 'owner' ~ '^[0-9a-f]{64}$')
        AND one.key = '["charge",' || dpvb.canonical_text(one.run) || ',' || one.attempt || ','
            || dpvb.canonical_text(facts ->> 'kind') || ',' || replace((facts -> 'steps')::text, ' ', '') || ']'
        ) IS NOT TRUE
    THEN
        RETURN 'it is not what a charge says';
    END IF;
    IF (0 <= ALL (dpvb.units(one.cost))) IS NOT TRUE THEN
        RETURN 'its cost is not one whole number for each order';
    END IF;
    IF one.kind = 'sole' AND (jsonb_typeof(facts -> 'epsilon') = 'number' AND NOT dpvb.is_charged(one.dataset))
        IS NOT TRUE
    THEN
        RETURN 'it is charged as a first plan and is none';
    END IF;
    RETURN NULL;
END""",
    ),
    # Releases are counted by their kind, and those that may have begun by their highest step.
    "refund_fault": (
        "one dpvb.entry, facts jsonb",
        "text",
        "STABLE",
        f"""
DECLARE
    begun bigint;
    fits boolean;
BEGIN
    IF (one.key = '["refund",' || dpvb.canonical_text(one.run) || ']' AND 0 >= ALL (dpvb.units(one.cost))
        AND facts -> 'cost' ->> 'form' = 'composition' AND jsonb_array_length(facts -> 'cost' -> 'events') > 0
        AND NOT EXISTS (
            SELECT FROM jsonb_array_elements(facts -> 'cost' -> 'events') AS event
            WHERE (event ->> 'num_steps' ~ '^[1-9][0-9]{{0,8}}$') IS NOT TRUE
        )) IS NOT TRUE
    THEN
        RETURN 'it is not what a refund says';
    END IF;
    IF EXISTS (SELECT FROM dpvb.entry WHERE run = one.run AND kind = 'sole') THEN
        RETURN 'a first plan gives nothing back';
    END IF;
    SELECT coalesce(max(step::text::bigint) + 1, 0) INTO begun FROM dpvb.entry, jsonb_array_elements(CASE
        WHEN kind = 'event' THEN jsonb_build_array(dpvb.facts(body) -> 'step')
        WHEN jsonb_typeof(dpvb.facts(body) -> 'steps') = 'null' THEN '[]'
        ELSE dpvb.facts(body) -> 'steps'
    END) AS step
    WHERE run = one.run AND step <> 'null' AND (kind = 'event' OR dpvb.facts(body) ->> 'kind' = 'again');
    WITH plans AS (
        SELECT cost, dpvb.facts(body) -> 'cost' -> 'events' AS events FROM dpvb.entry
        WHERE run = one.run AND kind = 'charge' AND dpvb.facts(body) ->> 'kind' = 'plan'
    ), counts AS (
        SELECT sum(number) AS number FROM (
            SELECT event - 'num_steps' AS kind, (event ->> 'num_steps')::numeric AS number
                FROM plans, jsonb_array_elements(events) AS event
            UNION ALL SELECT event - 'num_steps', -(event ->> 'num_steps')::numeric
                FROM jsonb_array_elements(facts -> 'cost' -> 'events') AS event
        ) AS releases GROUP BY kind
    ), parts AS (
        SELECT least({SATURATED}, sum(part) FILTER (WHERE NOT back)) + sum(part) FILTER (WHERE back)
            AS part
        FROM (SELECT cost, false AS back FROM plans UNION ALL SELECT one.cost, true) AS costs,
            unnest(dpvb.units(cost)) WITH ORDINALITY AS orders (part, number) GROUP BY number
    )
    SELECT (SELECT min(part) FROM parts) >= 0 AND (SELECT min(number) FROM counts) >= 0
        AND (SELECT sum(number) FROM counts) >= begun INTO fits;
    RETURN CASE WHEN fits IS NOT TRUE THEN 'it is more than its run has left' END;
END""",
    ),
    "totals_fault": (
        "one dpvb.entry",
        "text",
        "STABLE",
        f"""
DECLARE
    newest text;
    summed text;
    cap bigint;
BEGIN
    SELECT totals INTO newest FROM dpvb.entry
        WHERE dataset = one.dataset AND totals <> '' ORDER BY seq DESC LIMIT 1;
    SELECT '[' || string_agg(CASE
        WHEN before >= {SATURATED} THEN {SATURATED}
        ELSE least({SATURATED}, before + cost)
    END::text, ',' ORDER BY number) || ']' INTO summed FROM unnest(
        coalesce(dpvb.units(newest), array_fill(0::numeric, ARRAY[{len(ORDERS)}])), dpvb.units(one.cost)
    ) WITH ORDINALITY AS orders (before, cost, number);
    IF (one.totals = summed) IS NOT TRUE THEN
        RETURN 'its totals are not those before it and its cost';
    END IF;
    SELECT units INTO cap FROM dpvb.entry WHERE key = 'dataset/' || one.dataset;
    IF (one.units >= 0 AND (one.units <= cap OR one.kind = 'sole')) IS NOT TRUE THEN
        RETURN 'it is above the cap of its data set';
    END IF;
    RETURN NULL;
END""",
    ),
    "check_entry": (
        "",
        "trigger",
        "VOLATILE",
        f"""
DECLARE
    last dpvb.entry;
    first text;
    facts jsonb;
    fault text;
BEGIN
    PERFORM FROM dpvb.head FOR UPDATE;  -- Nobody appends out of turn.
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the row of head, at which writers take turns, is gone';
    END IF;
    NEW.writer := current_user;
    SELECT * INTO last FROM dpvb.entry ORDER BY seq DESC LIMIT 1;
    IF last.seq IS NULL THEN
        SELECT encode(sha256(convert_to('dpvb ledger {FORMAT} ' || uuid, 'UTF8')), 'hex') INTO first FROM dpvb.ledger;
    END IF;
    IF (NEW.seq = coalesce(last.seq, 0) + 1 AND NEW.prev = coalesce(last.hash, first)) IS NOT TRUE THEN
        RAISE EXCEPTION 'row % does not follow the last row', NEW.seq;
    END IF;
    IF (NEW.created ~ '^[0-9A-Z:+.-]{{0,40}}$'
        AND NEW.form ~ '^([0-9a-f]{{64}})?$' AND NEW.hash = dpvb.digest(NEW)) IS NOT TRUE
    THEN
        RAISE EXCEPTION 'row %: its hash does not fit its contents, or those are not spelled as they must be', NEW.seq;
    END IF;
    IF dpvb.is_plain(NEW.body) IS NOT TRUE THEN
        RAISE EXCEPTION 'row %: its body is none that every reader reads alike', NEW.seq;
    END IF;
    facts := NEW.body::jsonb;
    IF jsonb_path_exists(facts, '$.cost.events.size() ? (@ > {_MAX_EVENTS})') THEN
        RAISE EXCEPTION 'row %: it has more than {_MAX_EVENTS} different releases', NEW.seq;
    END IF;
    IF NEW.kind = 'dataset' THEN
        fault := dpvb.registration_fault(NEW, facts);
    ELSIF NOT EXISTS (SELECT FROM dpvb.entry WHERE key = 'dataset/' || NEW.dataset) THEN
        fault := 'its data set is not registered';
    ELSE
        fault := CASE
            WHEN (NEW.kind IN ('event', 'charge', 'sole', 'refund')) IS NOT TRUE THEN 'it has an unknown kind'
            ELSE dpvb.turn_fault(NEW, facts)
        END;
        fault := coalesce(fault, CASE NEW.kind
            WHEN 'event' THEN dpvb.event_fault(NEW, facts)
            WHEN 'refund' THEN dpvb.refund_fault(NEW, facts)
            ELSE dpvb.charge_fault(NEW, facts)
        END);
        IF NEW.kind <> 'event' AND fault IS NULL THEN
            fault := CASE
                WHEN (facts ->> 'favoured' ~ {_COUNT} AND (facts ->> 'favoured')::integer < {len(ORDERS)}
                    AND jsonb_typeof(facts -> 'favoured') = 'number' AND NEW.form <> '') IS NOT TRUE
                THEN 'it has no order that carries most of delta'
                ELSE dpvb.totals_fault(NEW)
            END;
        END IF;
    END IF;
    IF fault IS NOT NULL THEN
        RAISE EXCEPTION 'row %: %', NEW.seq, fault;
    END IF;
    RETURN NEW;
END""",
    ),
    # Whatever a client says: an update brings the head to the last row, as the rows have it, and does nothing else.
    "move_head": (
        "",
        "trigger",
        "VOLATILE",
        """
DECLARE
    one dpvb.entry;
BEGIN
    NEW := OLD;
    FOR one IN SELECT * FROM dpvb.entry WHERE seq > OLD.seq ORDER BY seq LOOP
        NEW.seq := one.seq;
        NEW.hash := one.hash;
        IF one.kind = 'dataset' THEN
            NEW.datasets := NEW.datasets || jsonb_build_object(one.dataset, jsonb_build_array(one.seq, 0));
        ELSIF one.totals <> '' THEN
            NEW.datasets := jsonb_set(NEW.datasets, ARRAY[one.dataset, '1'], to_jsonb(one.seq));
        END IF;
    END LOOP;
    RETURN NEW;
END""",
    ),
    "refuse": (
        "",
        "trigger",
        "VOLATILE",
        """
BEGIN
    RAISE EXCEPTION 'rows of a ledger are only ever appended';
END""",
    ),
}
_TABLES = ("ledger", "entry", "head")
_STAYS = "BEFORE {} ON dpvb.{} FOR EACH STATEMENT EXECUTE FUNCTION dpvb.refuse()"
# Spelled as PostgreSQL spells them when it is asked.
_TRIGGERS = {
    "ledger_stays": _STAYS.format("DELETE OR UPDATE OR TRUNCATE", "ledger"),
    "entry_stays": _STAYS.format("DELETE OR UPDATE OR TRUNCATE", "entry"),
    "head_stays": _STAYS.format("DELETE OR TRUNCATE", "head"),
    "entry_follows": "BEFORE INSERT ON dpvb.entry FOR EACH ROW EXECUTE FUNCTION dpvb.check_entry()",
    "head_follows": "BEFORE UPDATE ON dpvb.head FOR EACH ROW EXECUTE FUNCTION dpvb.move_head()",
}
_INDICES = {
    "entry_run": "dpvb.entry (run, seq)",
    "entry_dataset": "dpvb.entry (dataset, seq) WHERE totals <> ''",
    "entry_form": "dpvb.entry (dataset, form, kind) WHERE totals <> ''",
    "entry_registration": "dpvb.entry (seq) WHERE kind = 'dataset'",
}
_HEAD = "hash text NOT NULL DEFAULT '', datasets jsonb NOT NULL DEFAULT '{}'"
_WRITER = "writer name NOT NULL DEFAULT ''"


def _rules() -> Iterator[str]:
    for name, (arguments, result, volatility, body) in _FUNCTIONS.items():
        yield (
            f"CREATE FUNCTION dpvb.{name}({arguments}) RETURNS {result} LANGUAGE plpgsql {volatility}"
            f" SET search_path = {_PATH} AS $body${body}$body$"
        )
    yield "GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA dpvb TO PUBLIC"
    for name, rule in _TRIGGERS.items():
        yield f"CREATE TRIGGER {name} {rule}"


def make() -> Iterator[str]:
    """The statements that make an empty ledger in its schema, all but its one row of `ledger`."""
    columns = ", ".join(f"{name} {_TYPES[kind]} NOT NULL{_KEYS.get(name, '')}" for name, kind in COLUMNS.items())
    yield "CREATE TABLE dpvb.ledger (uuid text PRIMARY KEY, format bigint NOT NULL, created text NOT NULL)"
    yield f"CREATE TABLE dpvb.entry ({columns}, {_WRITER})"
    yield f"CREATE TABLE dpvb.head (one boolean PRIMARY KEY CHECK (one), seq bigint NOT NULL, {_HEAD})"
    yield "INSERT INTO dpvb.head VALUES (true, 0)"
    for name, where in _INDICES.items():
        yield f"CREATE INDEX {name} ON {where}"
    yield from _rules()


def upgrade() -> Iterator[str]:
    """The statements that make this version of the earlier one; rows stay as they are."""
    for name in ("refuse", "check_entry", "check_head"):
        yield f"DROP FUNCTION dpvb.{name}() CASCADE"
    yield f"ALTER TABLE dpvb.entry ADD COLUMN {_WRITER}"
    yield f"UPDATE dpvb.ledger SET format = {VERSION}"
    yield f"CREATE INDEX entry_registration ON {_INDICES['entry_registration']}"
    yield f"ALTER TABLE dpvb.head DROP COLUMN text, ADD COLUMN {_HEAD.replace(', ', ', ADD COLUMN ')}"
    yield """
UPDATE dpvb.head SET hash = (SELECT hash FROM dpvb.entry ORDER BY seq DESC LIMIT 1), datasets = (
    SELECT jsonb_object_agg(dataset, jsonb_build_array(seq, coalesce((
        SELECT max(seq) FROM dpvb.entry AS charge WHERE charge.dataset = registration.dataset AND totals <> ''
    ), 0))) FROM dpvb.entry AS registration WHERE kind = 'dataset'
) WHERE seq > 0"""
    yield from _rules()


#: Of the schema: its owner; whether it is this role's own, or of a role that this one is a member of; whether this role
#: may take the ledger in it for what it seems; what in it has another owner. Whoever could have made the schema takes
#: nobody's but that of a superuser or of the database's owner; the others have to trust whoever keeps the ledger.
OWNERS = """
SELECT owner.rolname, own,
    own OR owner.rolsuper OR owner.oid = datdba OR NOT has_database_privilege(datname, 'CREATE'),
    ARRAY(
        SELECT relname::text FROM pg_class WHERE relnamespace = pg_namespace.oid AND relowner <> nspowner
        UNION SELECT proname::text FROM pg_proc WHERE pronamespace = pg_namespace.oid AND proowner <> nspowner
        ORDER BY 1
    )
FROM pg_namespace JOIN pg_roles AS owner ON owner.oid = nspowner JOIN pg_database ON datname = current_database()
    JOIN pg_roles AS this ON this.rolname = current_user, LATERAL (
        SELECT owner.oid = this.oid OR (NOT this.rolsuper AND pg_has_role(owner.oid, 'MEMBER')) AS own
    ) AS ownership
WHERE nspname = 'dpvb'"""
#: Names and definitions of what the schema holds.
FUNCTIONS = """
SELECT proname, pg_get_function_arguments(pg_proc.oid), pg_get_function_result(pg_proc.oid), provolatile::text, prosrc,
    prosecdef, array_to_string(proconfig, '; '), lanname FROM pg_proc JOIN pg_language ON pg_language.oid = prolang
WHERE pronamespace = 'dpvb'::regnamespace"""
TRIGGERS = """
SELECT tgname, pg_get_triggerdef(pg_trigger.oid) FROM pg_trigger JOIN pg_class ON pg_class.oid = tgrelid
WHERE relnamespace = 'dpvb'::regnamespace AND NOT tgisinternal AND tgenabled IN ('O', 'A')"""
INDICES = """
SELECT relname FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid
WHERE relnamespace = 'dpvb'::regnamespace AND indisvalid"""
TABLES = """
SELECT relname FROM pg_class WHERE relnamespace = 'dpvb'::regnamespace AND relkind = 'r' AND relpersistence = 'p'
    AND NOT relrowsecurity AND NOT relhasrules AND NOT relhassubclass"""


def faults(
    functions: Iterable[tuple[Any, ...]],
    triggers: Iterable[tuple[str, str]],
    indices: Iterable[tuple[str]],
    tables: Iterable[tuple[str]],
) -> list[str]:
    """What differs from the tables, functions, triggers and indices that are made here, in words."""
    made = {
        (name, arguments, result, volatility[0].lower(), body, False, f"search_path={_PATH}", "plpgsql")
        for name, (arguments, result, volatility, body) in _FUNCTIONS.items()
    }
    rules = {(name, f"CREATE TRIGGER {name} {rule}") for name, rule in _TRIGGERS.items()}
    kept = {name for (name,) in [*indices, *tables]}
    return [
        *(f"function {name} is not as dpvb made it" for name in _names(made ^ set(functions))),
        *(f"trigger {name} is not as dpvb made it" for name in _names(rules ^ set(triggers))),
        *(f"index {name} is missing or invalid" for name in _INDICES if name not in kept),
        *(f"table {name} is missing, or has rules of its own" for name in _TABLES if name not in kept),
    ]


def _names(different: Iterable[tuple[Any, ...]]) -> list[str]:
    return sorted({row[0] for row in different})
