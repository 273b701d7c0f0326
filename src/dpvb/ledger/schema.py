"""The schema `dpvb` of a PostgreSQL database: its tables, and the triggers that refuse rows which would harm others.

Triggers check what readers cannot undo: the order and the hash of rows, the role that wrote a run, keys, the sign of
costs, and totals. All other rules of a ledger are `State.follow`, in Python. A row that breaks one of those is on
record, a charge counts with its cost, a refund gives nothing back, and `verify` reports the row.

Each function has its own search path, on which operators, functions and types are those of PostgreSQL. Tables are named
with their schema. The trigger sets a row's `writer`, the role that appended the row, whatever a client sends.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from dpvb.accounting.filter import ORDERS, SATURATED
from dpvb.ledger.chain import COLUMNS, COSTS, FORMAT, MAX_BODY
from dpvb.ledger.records import MAX_NAME

#: Version of tables, functions and triggers; an earlier one has other triggers, and the same rows.
VERSION = 4
#: The version that 0.2.0 made, which can be upgraded: it has no writers of rows, and another head.
EARLIER = 1
_TYPES = {int: "bigint", str: "text"}
_KEYS = {"seq": " PRIMARY KEY", "key": " UNIQUE"}
_PATH = "pg_catalog, pg_temp"
_ROW = " || ',' || ".join(
    f"'\"{name}\":' || " + (f"dpvb.canonical_text(one.{name})" if kind is str else f"one.{name}")
    for name, kind in sorted(COLUMNS.items())
    if name != "hash"
)

_OF_RUNS = ("event", *COSTS)
# The rules of new rows: the kinds of rows that a rule concerns (none: all rows), the error message, and the condition
# in SQL. `last` is the last row, `registration` the row of the data set, and `beginning` the first row of the run.
_RULES: tuple[tuple[Sequence[str], str, str], ...] = (
    (
        (),
        "it does not follow the last row",
        f"""NEW.seq = coalesce(last.seq, 0) + 1 AND NEW.prev = coalesce(last.hash, (
            SELECT encode(sha256(convert_to('dpvb ledger {FORMAT} ' || uuid, 'UTF8')), 'hex') FROM dpvb.ledger
        ))""",
    ),
    ((), "its hash does not fit its contents", "NEW.hash = dpvb.digest(NEW)"),
    (
        (),
        "a text is too long, or its time is not a time",
        f"""octet_length(NEW.body) <= {MAX_BODY} AND NEW.created ~ '^[0-9A-Z:+.-]{{0,40}}$'
            AND greatest(char_length(NEW.dataset), char_length(NEW.run), char_length(NEW.form)) <= {MAX_NAME}""",
    ),
    ((), "it has an unknown kind", f"NEW.kind IN ('dataset', {', '.join(map(repr, _OF_RUNS))})"),
    (
        ("dataset",),
        "its columns are not those of a registration",
        """(NEW.key, NEW.run, NEW.attempt, NEW.form, NEW.cost, NEW.totals)
            = ('dataset/' || NEW.dataset, '', 0, '', '', '')""",
    ),
    # A role that could register would choose its own limit, under another name for the same people.
    (
        ("dataset",),
        "only the owner of the ledger registers data sets",
        "pg_has_role((SELECT relowner FROM pg_class WHERE oid = 'dpvb.entry'::regclass), 'MEMBER')",
    ),
    (_OF_RUNS, "its data set is not registered", "registration.seq > 0"),
    (
        _OF_RUNS,
        "its run was never charged",
        """NEW.run <> '' AND CASE
            WHEN beginning.seq > 0 THEN beginning.kind <> 'event'
            ELSE NEW.kind IN ('charge', 'sole')
                OR NEW.key = '["event",' || dpvb.canonical_text(NEW.run) || ',0,"looked",null]'
        END""",
    ),
    # Rows of version 0.2 have no writer.
    (
        _OF_RUNS,
        "its run belongs to another role",
        """beginning.seq IS NULL OR beginning.writer = current_user
            OR (beginning.writer = '' AND NEW.kind <> 'refund')
            OR EXISTS (SELECT FROM pg_roles WHERE rolname = beginning.writer AND pg_has_role(oid, 'MEMBER'))""",
    ),
    (
        _OF_RUNS,
        "its run was charged to another data set",
        "beginning.seq IS NULL OR NEW.dataset = beginning.dataset",
    ),
    # So a run cannot take the keys of another one, and has one refund.
    (
        _OF_RUNS,
        "its key is not one of its run",
        """CASE
            WHEN NEW.kind = 'refund' THEN NEW.key = '["refund",' || dpvb.canonical_text(NEW.run) || ']'
            ELSE starts_with(NEW.key,
                '["' || replace(NEW.kind, 'sole', 'charge') || '",' || dpvb.canonical_text(NEW.run) || ',')
        END""",
    ),
    (("event",), "it is an event with a cost", "(NEW.form, NEW.cost, NEW.totals, NEW.units) = ('', '', '', 0)"),
    (("charge", "sole"), "its cost is not one whole number for each order", "0 <= ALL (dpvb.units(NEW.cost))"),
    (("refund",), "its cost is not one whole number for each order", "0 >= ALL (dpvb.units(NEW.cost))"),
    (
        COSTS,
        "its totals are not those before it plus its cost",
        f"""strpos(NEW.totals, '-') = 0 AND NEW.totals = (
            SELECT '[' || string_agg(CASE
                WHEN before >= {SATURATED} THEN {SATURATED}
                ELSE least({SATURATED}, before + cost)
            END::text, ',' ORDER BY number) || ']'
            FROM unnest(
                coalesce(dpvb.units((
                    SELECT totals FROM dpvb.entry
                    WHERE dataset = NEW.dataset AND totals <> '' ORDER BY seq DESC LIMIT 1
                )), array_fill(0::numeric, ARRAY[{len(ORDERS)}])),
                dpvb.units(NEW.cost)
            ) WITH ORDINALITY AS orders (before, cost, number)
        )""",
    ),
    (
        COSTS,
        "it is above the cap of its data set",
        "NEW.units >= 0 AND (NEW.units <= registration.units OR NEW.kind = 'sole')",
    ),
)


def _checks() -> Iterator[str]:
    for kinds, words, condition in _RULES:
        concerned = f"NEW.kind IN ({', '.join(map(repr, kinds))}) AND " if kinds else ""
        yield f"""
    IF {concerned}({condition}) IS NOT TRUE THEN
        RAISE EXCEPTION 'row %: {words}', NEW.seq;
    END IF;"""


# Arguments, result, volatility and body of each function. No body has a backslash: a setting of the caller decides what
# a backslash means in a text. A condition that is NULL is not met: IS NOT TRUE.
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
    # The whole numbers, one for each order, of a text in canonical JSON; NULL if the text is another one.
    "units": (
        "numbers text",
        "numeric[]",
        "IMMUTABLE",
        f"""
DECLARE
    parts bigint[] := string_to_array(btrim(numbers, '[]'), ',');
BEGIN
    RETURN CASE
        WHEN cardinality(parts) = {len(ORDERS)} AND '[' || array_to_string(parts, ',') || ']' = numbers THEN parts
    END;
END""",
    ),
    "check_entry": (
        "",
        "trigger",
        "VOLATILE",
        f"""
DECLARE
    last dpvb.entry;
    registration dpvb.entry;
    beginning dpvb.entry;
BEGIN
    PERFORM FROM dpvb.head FOR UPDATE;  -- Writers take turns.
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the row of head, at which writers take turns, is gone';
    END IF;
    NEW.writer := current_user;
    SELECT * INTO last FROM dpvb.entry ORDER BY seq DESC LIMIT 1;
    SELECT * INTO registration FROM dpvb.entry WHERE key = 'dataset/' || NEW.dataset;
    SELECT * INTO beginning FROM dpvb.entry WHERE run = NEW.run AND NEW.kind <> 'dataset' ORDER BY seq LIMIT 1;
{"".join(_checks())}
    RETURN NEW;
END""",
    ),
    # An update moves the head to the last row, whatever a client says, and does nothing else.
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
    """The statements that make this version of `EARLIER`; rows stay as they are."""
    for name in ("refuse", "check_entry", "check_head"):
        yield f"DROP FUNCTION dpvb.{name} CASCADE"
    yield f"UPDATE dpvb.ledger SET format = {VERSION}"
    yield f"ALTER TABLE dpvb.entry ADD COLUMN {_WRITER}"
    yield f"ALTER TABLE dpvb.head DROP COLUMN text, ADD COLUMN {_HEAD.replace(', ', ', ADD COLUMN ')}"
    yield """
UPDATE dpvb.head SET hash = (SELECT hash FROM dpvb.entry ORDER BY seq DESC LIMIT 1), datasets = (
    SELECT jsonb_object_agg(dataset, jsonb_build_array(seq, coalesce((
        SELECT max(seq) FROM dpvb.entry AS charge WHERE charge.dataset = registration.dataset AND totals <> ''
    ), 0))) FROM dpvb.entry AS registration WHERE kind = 'dataset'
) WHERE seq > 0"""
    yield from _rules()


#: Owners of the schema: its owner; whether it is this role's own, or of a role that this one is a member of; whether
#: this role may trust the ledger in it; objects in it of other owners. A role that could have made the schema trusts
#: only that of a superuser or of the database's owner; the others have to trust the ledger's administrator.
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
#: Kind, name and definition of the objects in the schema; an index or a table that is not as it should be is left out.
OBJECTS = f"""
SELECT 'function', proname::text, concat_ws(' ', pg_get_function_arguments(pg_proc.oid), 'RETURNS',
        pg_get_function_result(pg_proc.oid), provolatile, prosecdef, lanname, array_to_string(proconfig, ' '), prosrc)
    FROM pg_proc JOIN pg_language ON pg_language.oid = prolang WHERE pronamespace = 'dpvb'::regnamespace
UNION ALL SELECT 'trigger', tgname::text, pg_get_triggerdef(pg_trigger.oid)
    FROM pg_trigger JOIN pg_class ON pg_class.oid = tgrelid
    WHERE relnamespace = 'dpvb'::regnamespace AND NOT tgisinternal AND tgenabled IN ('O', 'A')
UNION ALL SELECT 'index', relname::text, '' FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid
    WHERE relnamespace = 'dpvb'::regnamespace AND indisvalid AND relname IN ({", ".join(map(repr, _INDICES))})
UNION ALL SELECT 'table', relname::text, '' FROM pg_class
    WHERE relnamespace = 'dpvb'::regnamespace AND relname IN {_TABLES} AND relkind = 'r' AND relpersistence = 'p'
    AND NOT relrowsecurity AND NOT relhasrules AND NOT relhassubclass"""


def faults(objects: Iterable[tuple[str, str, str]]) -> list[str]:
    """Return in words how the objects of a schema, as `OBJECTS` lists them, differ from those that `make` makes."""
    expected = {
        *(
            (
                "function",
                name,
                f"{arguments} RETURNS {result} {volatility[0].lower()} f plpgsql search_path={_PATH} {body}",
            )
            for name, (arguments, result, volatility, body) in _FUNCTIONS.items()
        ),
        *(("trigger", name, f"CREATE TRIGGER {name} {rule}") for name, rule in _TRIGGERS.items()),
        *(("index", name, "") for name in _INDICES),
        *(("table", name, "") for name in _TABLES),
    }
    different = {(kind, name) for kind, name, _ in expected ^ set(objects)}
    return [f"{kind} {name} is missing, or not as dpvb made it" for kind, name in sorted(different)]
