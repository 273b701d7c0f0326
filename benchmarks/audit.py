"""The audit of all shipped models: what `dpvb audit --all` finds, in short, and its time."""

import resource
import time

import dpvb.audit


def main() -> None:
    start = time.perf_counter()
    report = dpvb.audit.audit(workers=2)
    wall = time.perf_counter() - start
    cpu = sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    print("## Audit of all models\n")
    print("One attacked run: epsilon proven at confidence 1 - 1e-6, at claims of 1 and of 8.\n")
    print("| subject | checks | findings | one attacked run proves |")
    print("|---|---|---|---|")
    for subject in report.subjects:
        checks = [check for check in report.checks if check.subject == subject]
        proven = [check.measured.split(" at least")[0] for check in checks if check.name == "epsilon of one run"]
        findings = sum(not check.passed for check in checks)
        print(f"| {subject} | {len(checks)} | {findings} | {'; '.join(proven)} |")
    print(f"\n{report.summary}. {wall:.0f} s on two processes (asked 300), {cpu:.0f} CPU-s.")


if __name__ == "__main__":
    main()
