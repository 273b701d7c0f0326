"""The guarantees of dpvb by name. Tests carry `pytest.mark.guarantees(name, ...)`; the matrix page is made of both.

`python tests/guarantees.py` writes `docs/guarantees-and-tests.md`. Marks are read from the text of the tests.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

TESTS = Path(__file__).resolve().parent
PAGE = TESTS.parent / "docs" / "guarantees-and-tests.md"

HEAD = """# Guarantees and their tests

Each row is a statement of the [guarantee](guarantee.md) and the tests that fail if it does not hold. A test is evidence, not a proof; the
[proofs](proofs.md) are a page of their own. `python tests/guarantees.py` generates this page from the marks of the tests.
"""

#: Section, name and statement of each guarantee.
GUARANTEES = {
    "Releases": {
        "boundary": "Private data and sums without noise are read only inside the privacy boundary.",
        "own part": "A unit changes a release only by its own clipped statistic, bit for bit, whatever the other units are.",
        "private words": 'With `vocabulary="private"`, a word that only one unit has is released with at most the probability that is charged to δ.',
        "word totals": "One unit more changes word totals only by its own weights. Words are released in alphabetical order. Words that were not released are not in files, errors or output.",
        "added delta": "The δ that a release adds is included in the plan's ε and in the ledger's limit.",
        "every form": "No contribution exceeds its bound, in any form, shape and number type that a model returns.",
        "no leak by E-step": "Values that an E-step writes into q, the model or its batch reach no other computation. An interrupted fit exposes no sum.",
        "pair tables": "A row has one cell in each two-column table of a mixture, and its norm is the declared bound.",
        "mixture rows": "A row's contribution to all components of a mixture together is within one bound; each component is clipped by itself.",
        "sequence counts": "All sequences of a person together contribute to window counts within one bound.",
        "sequence moments": "All numeric sequences of a person together add moments within one norm, computed from the numbers that are added. An invalid record affects only its person.",
        "events": "An event with an invalid cell affects only its own person. Temporary files of events are readable only by this user, contain no names, and are deleted.",
        "naive Bayes rows": "A row of naive Bayes adds its label and its columns, each within its bound. A row without a declared class adds nothing.",
        "batch sizes": "No user-defined model receives more rows at once than the audit tries: 0, 1 and exactly the largest batch. The included models are tested at that size.",
        "large units": "In a user-defined model, a unit with more rows than the largest batch affects no other unit.",
        "empty batch": "Each release calls the model once with no rows, even for data without rows, so that a failure does not distinguish no unit from one.",
        "public refusals": "A call is refused before its charge only for public reasons: the form of the data, names and number of columns. Cells and dtypes refuse no call.",
        "kinds of records": "Each record is classified as a text or a list of words by itself, whatever the other records are.",
        "failures": "A failure does not reveal which units were drawn. A model that fails on no rows ends every fit; a unit that fails otherwise adds nothing.",
        "unit count": "The number of included units is released with noise and charged. Nothing else about it is disclosed.",
        "clipping": "No statistic exceeds its bound for any values: huge, tiny, denormal, infinite or not numbers.",
        "row weights": "Weights, exposures and offsets are bounded by public numbers; noise is scaled to the largest weight; a row with an invalid value is ignored.",
        "not finite": "A unit without a finite statistic adds nothing, and this is not visible.",
        "excluded people": "Rows of people who are excluded because of an earlier fit add nothing, and this is not visible.",
        "public priors": "A model without noise is accepted as a prior only if its documents were declared public.",
        "no laundering": "A fit to public documents accepts no release of private data as a prior that others would take for public.",
        "priors": "A release of the same data set is refused as a prior. For other people's releases, the privacy statement adds their cost.",
        "linear rows": "A row of a linear regression is within the bound of each block at every query, for any length and any y.",
        "linear clipping": "The clipping of residuals of a linear regression is a function of its releases.",
        "persons": "A person with many rows is one unit.",
    },
    "Noise and accounting": {
        "exact sums": "Sums are exact integers: order, chunks and threads change no bit.",
        "noise": "Noise is a rounded continuous Gaussian of the stated standard deviation; its low bits do not depend on the sum.",
        "generator": "Noise and batches come from a cryptographic generator with a fresh 256-bit secret that no parameter seeds.",
        "fresh noise": "Every draw is fresh, even for the same sum: differences of releases do not cancel noise.",
        "sampling": "Batches are drawn as they are accounted: anew at each step, never at a higher rate.",
        "absent units": "A unit that can be absent is accounted with its whole contribution; an empty place of a fixed-size batch is accounted as a unit.",
        "accountant": "ε is an upper bound over all releases. A second accountant checks the first plan of each form in a process before data are read, and every printed statement.",
        "calibration": "The noise of a fit meets its target and never exceeds the budget.",
    },
    "Data-independent behaviour": {
        "nothing inferred": "No width, class, category, range or size is inferred from private data, except by a release.",
        "warnings": "Warnings depend only on public facts and are equal for neighbouring data sets.",
        "public columns": "Counts are fitted only if their columns are named or declared public. The privacy statement names each public input and its source.",
        "measured ranges": "A declared range that looks computed from rows causes a warning before the charge. The warning does not show the range.",
        "silence": "An invalid value raises no error. A failure inside the privacy boundary is one fixed message. Warnings and log records are suppressed there.",
        "logs": "A log (`--log-file`) contains the arguments without passwords, the text of standard error, numbers of releases and times, and is readable only by its user.",
        "models": "A fitted model, its file and the printed output contain no private value except through releases.",
        "data check": "`dpvb check-data` reports invalid values in words, only on a terminal, after a typed yes, without shares by which ranges or lists could be tuned.",
        "forecasts": "The forecast before a fit reads no data, writes to no ledger and leaves no files.",
        "dry run": "A dry run reads no private row, charges nothing, has the plan of its fit, and is never saved.",
        "scores": "A score of private rows is refused unless the rows are declared public.",
        "checked before charge": "Topic files with impossible numbers, and messages of cluster processes in another form, are refused before the charge.",
        "pickled tables": "A pickled `Table` contains only private cells of the schema's columns; for files, only their paths.",
        "model files": "Loading a model file runs no code from the file.",
    },
    "Reader isolation": {
        "one record more": "One record more in a file is one unit more, and nothing else changes: every format, compressed or not, one or several files, in memory or streamed.",
        "CSV": "The form of a CSV file affects each record only by the record's own bytes.",
        "schemas": "A schema is not computed from rows or from statistics of rows.",
        "columns": "Dates, splines and interactions depend only on their own row and the schema, are bounded, and raise no error for invalid values.",
        "cells in memory": "A cell in memory changes only its own unit, whatever dtype it gives its column.",
        "order in a unit": "The order inside a unit depends only on that unit's records: in memory, streamed, in several files and in shards.",
        "times": "A time is the same moment in every dtype, and no record of another person changes the order of events.",
        "no inference": "Dtypes and file structure decide nothing.",
        "any bytes": "No bytes raise an error about a record, and damage extends no further than documented.",
        "one person": "A person is one unit across files, formats and spellings, and changes a sum by at most one bound.",
        "no person": "Rows without a person ID add nothing.",
    },
    "Bounded queries": {
        "domains": "Values that are not finite reach no E-step, and every declared domain is checked.",
        "hostile queries": "At a hostile q, no unit exceeds its bound, no two units are further apart than accounted, and none affects another.",
        "enforced domains": "The domains on which accounting relies are enforced by the privacy boundary, not by the model.",
        "no failing unit": "No unit makes a release fail.",
        "resumed values": "Values from the folder of an interrupted run are accepted only in the plan's form, and give no q outside its domain.",
    },
    "Ledger": {
        "filter": "An analyst who chooses plans after seeing results cannot exceed the limit.",
        "charge first": "A fit is charged durably before it reads data, and its releases are recorded before they can be read.",
        "killed fits": "A fit that is killed at any point resumes from its last release at its original charge, even if that takes the whole limit.",
        "lost releases": "A recorded release is never made again; it is charged again if its bytes are lost. A release that is not recorded was never readable.",
        "interrupted runs": "No decision about an interrupted run depends on its data.",
        "one process": "One process at a time resumes a run. A forked child releases and refunds nothing.",
        "durable charges": "An acknowledged charge is never lost, wherever the process dies.",
        "races": "Concurrent writers never exceed the limit, in a file or in PostgreSQL.",
        "append only": "In PostgreSQL, an appending role can be refunded only its own charge, cannot end or block other runs, and cannot register data sets. Harmful rows are refused; readers ignore other rows that dpvb never writes, except the cost of a charge.",
        "foreign schemas": "A PostgreSQL schema that another role created beforehand is refused.",
        "standbys": "A charge that did not reach its required standby is not acknowledged.",
        "declared costs": "The charge of an analysis outside dpvb costs as much as its declared mechanism, and composes with fits.",
        "run blocks": "A fit inside `with dpvb.Run(...)` is charged as the block states, in its thread and in the threads and processes that a search starts; otherwise it is refused.",
        "copies": "Clones, copies, pickles and processes are each charged once per fit.",
        "exact totals": "Totals are exact integers: costs are rounded up, limits and refunds down. A charge of an earlier version has today's cost.",
        "verify": "`verify` finds every changed or removed row of a ledger.",
        "set back": "A ledger that is set back to an older copy spends nothing. It is detected by its head, by each user of a machine who saw more, or by the receipt of a released model.",
        "one history": "A ledger in a file has one history: several objects, copies, replaced files and forks together never obtain more than one.",
        "tokens": "Only the holder of a run's token can resume or end the run. A fork does not hold it.",
        "check notes": "The note that data were checked costs nothing, replaces no plan, and is in the chain.",
        "clocks": "No decision depends on a clock.",
        "parts": "Parts of a data set that were registered in advance are charged in parallel.",
        "refunds": "Only releases that never began are refunded, from the run's own first charge, even if another role writes the row.",
        "foreign claims": "The cost that another role writes is recalculated; an unexpected row of another role blocks no one.",
        "same data": "A resumed run reads the files of its beginning: a file that was changed, added or removed is refused before anything is read. A file that changes between two passes ends the fit.",
        "run records": "Names, sizes, times and keyed digests of the files of a run are in its record, which only its user can read, and in no model, statement or ledger.",
        "checkpoints": "Checkpoints contain released values, and names, sizes and times of files. They are readable only by their owner. Files that another user could have written are not trusted.",
    },
    "Federations": {
        "noise shares": "With trust none, each client adds all its noise. Under secure aggregation, clients that are present and honest add the whole noise together. A trusted server adds it.",
        "integers": "Rounding to integers costs no more than the additional 0.1 % of noise.",
        "one client": "A unit at one client changes the sum only by its own clipped statistic, also under masks.",
        "masks": "Under secure aggregation the server receives uniform words of each client and the exact sum of all.",
        "fresh masks": "A client that lost its memory draws a new nonce, and one whose folder may have been set back stops, so that no masks hide two sums.",
        "no wrap": "The sums of all clients with their noise never wrap.",
        "attempts": "A missing client ends the attempt. Another attempt is another release, charged again to each client that answers.",
        "max_colluding": "Under secure aggregation the noise unknown to the server suffices for any F missing clients and any C colluding clients. With fewer than M - F participants no client answers.",
        "same answers": "A request that was answered once gets the same bytes or is refused. An offer is accepted once.",
        "full disks": "An offer that a client's disk cannot hold is refused before the charge.",
        "requests": "The same request gets the same bytes and costs nothing. Any other is refused or charged.",
        "messages": "Messages that are truncated, changed, repeated, exchanged or of another run are rejected and spend nothing.",
        "takeover": "A restarted server repeats the requests of the one before. A trusted server adds noise to no second sum of a step.",
        "aborted runs": "If a run ends early, each client was charged the plan at most once, and once for each repeated attempt.",
    },
    "Files, processes and names": {
        "own files": "Files that dpvb trusts as its user's own are regular files, not links, and not writable by other users.",
        "resume": "A repeated call of `dpvb fit` resumes its own run, is charged once, and replaces no file unless told to.",
        "no ledger in models": "A model file sets no ledger, data set or checkpoint of a later fit.",
        "safe models": "A model file makes no module run code, and creates nothing larger than itself.",
        "own model": "A run resumes only with its own model and parameters.",
        "smoke tests": "Messages about a user-defined model before the charge come from synthetic rows. Errors of a user-defined source are not quoted.",
        "undeclared labels": "A row with an undeclared label is ignored.",
        "public scores": "A user-defined model scores only rows that are declared public, and its prior comes from other people.",
        "imports": "On the command line, a module is imported only with `--import`; an installed module comes before one in the current folder.",
        "JSON": "JSON files with duplicate keys, infinities or half characters are refused.",
        "workers": "Worker processes run no code of the current folder.",
        "dependencies": "No dependency takes settings, code or caches from the current folder, or from a folder that others may write.",
        "streams": "The temporary file of a stream has no name, and no other user can open it. If the disk is full, every "
        "unit is still included.",
        "ledger files": "Every file that belongs to a ledger has the ledger's mode.",
        "Dask": "A Dask cluster that listens beyond the machine without TLS is refused. Spilled data and topic proportions are readable only by their user.",
        "passwords": "No password of a ledger is stored in a file, shown by an estimator, or quoted.",
        "terminals": "No text controls a terminal or a picture.",
        "names": "The name of a new data set consists of ASCII letters, digits, `.`, `-` and `_`, and resembles no other name.",
        "network drives": "A ledger file on a network drive is refused where Linux reports the drive.",
    },
    "Selection and checks": {
        "selection": "`dpvb.private_select` costs what it states for any number of runs, and discloses nothing about the other runs.",
        "audit": "`dpvb audit` finds a record that changes more than its own part, and a run with too little noise, in the planted examples.",
        "test power": "The tests detect noise of another scale than declared, and an accountant that understates ε, for every kind of release and plan.",
        "planted bugs": "The tests detect every planted bug (`make planted-bugs`).",
    },
}


def marked() -> dict[str, list[str]]:
    """Names of the tests with a mark, by guarantee."""
    tests = defaultdict(list)
    for path in sorted(TESTS.rglob("test_*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            for call in node.decorator_list if isinstance(node, ast.FunctionDef) else ():
                if isinstance(call, ast.Call) and ast.unparse(call.func) == "pytest.mark.guarantees":
                    for name in map(ast.literal_eval, call.args):
                        tests[name].append(node.name)
    return tests


def page() -> str:
    tests, text = marked(), HEAD
    for section, guarantees in GUARANTEES.items():
        text += f"\n## {section}\n\n| guarantee | tests |\n|---|---|\n"
        for name, statement in guarantees.items():
            text += f"| {statement} | {', '.join(f'`{test}`' for test in sorted(tests[name]))} |\n"
    return text


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
